// A probability so close to one that six digits round it to one now and then.
parameters {
  real<lower=0, upper=1> p;
  real mu;
}
model {
  p ~ beta(2, 0.2);
  mu ~ std_normal();
}

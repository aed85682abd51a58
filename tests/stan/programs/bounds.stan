// Scalar transforms: constant bounds, bounds that are parameters, offset and multiplier, ordered.
parameters {
  real<lower=-1> low;
  real<upper=2> high;
  real<lower=1, upper=3> both;
  real<lower=low> above;
  real<lower=low, upper=above> between;
  real<offset=5, multiplier=2> shifted;
  ordered[3] rising;
  vector<lower=0>[2] positive;
}
model {
  low ~ std_normal();
  high ~ std_normal();
  both ~ std_normal();
  above ~ std_normal();
  between ~ std_normal();
  shifted ~ normal(5, 2);
  rising ~ std_normal();
  positive ~ std_normal();
}

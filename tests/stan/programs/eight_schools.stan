// Eight schools, non-centered: mu ~ normal(0, 5), tau ~ half-Cauchy(0, 5), theta = mu + tau * z.
data {
  int<lower=0> J;
  array[J] real y;
  array[J] real<lower=0> sigma;
}
parameters {
  real mu;
  real<lower=0> tau;
  vector[J] z;
}
transformed parameters {
  vector[J] theta = mu + tau * z;
}
model {
  mu ~ normal(0, 5);
  tau ~ cauchy(0, 5);
  z ~ std_normal();
  y ~ normal(theta, sigma);
}
generated quantities {
  array[J] real y_new = normal_rng(theta, sigma);
}

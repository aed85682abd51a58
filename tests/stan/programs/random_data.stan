// Transformed data that depend on the seed.
transformed data {
  vector[20] y;
  for (n in 1 : 20) {
    y[n] = normal_rng(0, 1);
  }
}
parameters {
  real mu;
  real<lower=0> sigma;
}
model {
  mu ~ normal(0, 5);
  sigma ~ exponential(1);
  y ~ normal(mu, sigma);
}

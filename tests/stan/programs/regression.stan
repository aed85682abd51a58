// A regression with knobs: each makes another model of it that is easily taken for the first.
data {
  int<lower=0> N;
  int<lower=0> K;
  matrix[N, K] X;
  vector[N] y;
  real prior_mean;
  real<lower=0> prior_sd;
  real<lower=0> sigma_sd;
  real<lower=0> factor; // of the scale of the likelihood
  real<lower=0> nu; // degrees of freedom of the likelihood, 0 for a normal one
  real<lower=0> jacobian; // 1, or 0 to take the log Jacobian of sigma out again
}
parameters {
  vector[K] b;
  real<lower=0> sigma;
}
model {
  b ~ normal(prior_mean, prior_sd);
  sigma ~ normal(0, sigma_sd);
  if (nu > 0) {
    y ~ student_t(nu, X * b, factor * sigma);
  } else {
    y ~ normal(X * b, factor * sigma);
  }
  target += (jacobian - 1) * log(sigma);
}

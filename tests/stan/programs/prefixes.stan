// Names that look like CmdStan's columns of momenta and gradients.
parameters {
  real g_rate;
  vector[2] p_share;
  real<lower=0> g_;
}
model {
  g_rate ~ normal(1, 2);
  p_share ~ normal(g_rate, 1);
  g_ ~ gamma(3, 2);
}

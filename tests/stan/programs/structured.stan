// Parameters with fewer degrees of freedom than entries, and unit vectors.
parameters {
  array[2] simplex[3] share;
  cholesky_factor_corr[3] L;
  corr_matrix[3] R;
  array[2] unit_vector[3] direction;
}
model {
  share[1] ~ dirichlet([2, 3, 4]');
  share[2] ~ dirichlet([5, 1, 2]');
  L ~ lkj_corr_cholesky(3);
  R ~ lkj_corr(2);
  target += 1.5 * direction[1, 1] + 0.5 * direction[2, 3];
}

// Parameters with fewer degrees of freedom than entries, all of which their draws determine.
parameters {
  array[2] simplex[3] share;
  cholesky_factor_corr[3] L;
  corr_matrix[3] R;
  cov_matrix[2] S;
}
model {
  share[1] ~ dirichlet([2, 3, 4]');
  share[2] ~ dirichlet([5, 1, 2]');
  L ~ lkj_corr_cholesky(3);
  R ~ lkj_corr(2);
  S ~ wishart(5, diag_matrix([1, 2]'));
}

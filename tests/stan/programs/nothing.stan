// No parameters at all.
generated quantities {
  real x = normal_rng(0, 1);
}

// Complex numbers and tuples, each entry with a mean of its own.
parameters {
  real x;
  complex z;
  complex_vector[2] w;
  array[2] complex a;
  tuple(real, vector[2]) pair;
}
model {
  x ~ normal(1, 1);
  get_real(z) ~ normal(2, 1);
  get_imag(z) ~ normal(3, 1);
  for (i in 1 : 2) {
    get_real(w[i]) ~ normal(3 + i, 1);
    get_imag(w[i]) ~ normal(5 + i, 1);
    get_real(a[i]) ~ normal(7 + i, 1);
    get_imag(a[i]) ~ normal(9 + i, 1);
    pair.2[i] ~ normal(12 + i, 1);
  }
  pair.1 ~ normal(12, 1);
}

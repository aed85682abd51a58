// Containers: each entry has its own mean, made of its indices, so that a swapped entry shows.
parameters {
  matrix[2, 3] A;
  array[2] matrix[3, 2] B;
  array[2, 3] real C;
  complex z;
  tuple(real, vector[2]) pair;
  array[2] tuple(real, vector[2]) pairs;
}
model {
  for (i in 1 : 2) {
    for (j in 1 : 3) {
      A[i, j] ~ normal(10 * i + j, 1);
      C[i, j] ~ normal(10 * i + j, 1);
      for (k in 1 : 2) {
        B[i, j, k] ~ normal(100 * i + 10 * j + k, 1);
      }
    }
    pair.2[i] ~ normal(i, 1);
    pairs[i].1 ~ normal(i, 1);
    for (j in 1 : 2) {
      pairs[i].2[j] ~ normal(10 * i + j, 1);
    }
  }
  get_real(z) ~ std_normal();
  get_imag(z) ~ std_normal();
  pair.1 ~ std_normal();
}

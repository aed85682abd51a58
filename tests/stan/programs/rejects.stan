// Rejects a part of the space. The limit is data.
data {
  real limit;
}
parameters {
  real x;
  vector[2] y;
}
model {
  if (x > limit) {
    reject("x is above the limit: ", x);
  }
  x ~ std_normal();
  y ~ std_normal();
}

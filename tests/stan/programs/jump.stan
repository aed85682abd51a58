// A density that ends without a declared bound: of uniform draws, or where the program rejects.
data {
  int<lower=0, upper=1> rejects;
  real limit;
}
parameters {
  real x;
  vector[2] y;
}
model {
  if (rejects) {
    x ~ std_normal();
    if (x > limit) {
      reject("x is above the limit: ", x);
    }
  } else {
    x ~ uniform(-1, limit);
  }
  y ~ std_normal();
}

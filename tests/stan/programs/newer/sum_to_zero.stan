// A type that stanc knows from 2.36 on.
parameters {
  sum_to_zero_vector[4] contrast;
  real x;
}
model {
  contrast ~ std_normal();
  x ~ std_normal();
}

"""Networks: the function classes W, Π and Q, and the multipliers λ."""

void f() { kernel<<<1, 32>>>(); }

int a;  // N1.1, N9.9

int a;  // N1.1

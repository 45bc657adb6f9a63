int a   = 1;

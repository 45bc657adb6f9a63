int second() { return f(1); }

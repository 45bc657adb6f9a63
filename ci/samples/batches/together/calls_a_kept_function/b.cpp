int rank(long x);
int second() { return rank(1); }

// rank(kFirst)
int second() { return other::kFirst + object.rank(1); }

using namespace one;
int first() { return f(1); }

// eps is a float
struct Quantizer { double eps; };

namespace assay {

class Matrix {
 public:
  int rows = 0;
};

}  // namespace assay

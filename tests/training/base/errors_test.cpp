#include "training/base/errors.h"

#include <gtest/gtest.h>

namespace assay::training {

TEST(Errors, ClassesCatchWhatPythonsWould) {
  EXPECT_EQ(name_of(ErrorClass::not_implemented_error), "NotImplementedError");
  EXPECT_TRUE(is_a(ErrorClass::validation_error, ErrorClass::value_error));
  EXPECT_TRUE(is_a(ErrorClass::not_implemented_error, ErrorClass::runtime_error));
  EXPECT_FALSE(is_a(ErrorClass::value_error, ErrorClass::validation_error));
  EXPECT_FALSE(is_a(ErrorClass::assertion_error, ErrorClass::runtime_error));
}

}  // namespace assay::training

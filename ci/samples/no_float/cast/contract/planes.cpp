const char* kName = "float"; int scale = static_cast<float>(1);

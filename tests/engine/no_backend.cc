// A shared object that has nothing of a backend.
extern "C" int kipp_no_backend() {
  return 0;
}

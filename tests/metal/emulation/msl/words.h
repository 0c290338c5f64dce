// MSL's words as C++ ("Address Spaces", "Kernel Functions"), and C++'s that MSL lacks ("Restrictions" of the section
// about MSL and C++), which name something that does not exist and so do not compile. No include guard: words_end.h
// undoes it. threadgroup stands only before variables in kernels, never in a pointer's type: there it fails to compile.
#define kernel
#define device
#define constant
#define thread
#define threadgroup static

#define double kipp_msl_has_no_double
#define virtual kipp_msl_has_no_virtual
#define new kipp_msl_has_no_new
#define delete kipp_msl_has_no_delete
#define try kipp_msl_has_no_try
#define catch kipp_msl_has_no_catch
#define throw kipp_msl_has_no_throw
#define goto kipp_msl_has_no_goto
#define dynamic_cast kipp_msl_has_no_dynamic_cast
#define typeid kipp_msl_has_no_typeid
#define thread_local kipp_msl_has_no_thread_local
#define register kipp_msl_has_no_register
#define noexcept kipp_msl_has_no_noexcept
#define std kipp_msl_has_no_std
#define asm kipp_msl_has_no_asm
#define printf kipp_msl_has_no_printf

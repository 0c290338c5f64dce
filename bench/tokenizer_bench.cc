// Tokenizer benchmarks: creation, the golden texts shuffled to 10 MB, the worst cases of issue-like hostile input, and
// words of one length (where the two BPE ways cross). Prints one JSON object; options: --text FILE --repeats N.

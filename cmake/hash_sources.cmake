# Writes a C++ string literal to OUT: a hash of the SOURCES (a list, relative to ROOT) and of the text FLAGS.
#   cmake -DROOT=DIR -DSOURCES=a.cc;b.h -DFLAGS=... -DOUT=FILE -P hash_sources.cmake
set(all "${FLAGS}")
list(SORT SOURCES)
foreach(source IN LISTS SOURCES)
  file(SHA256 ${ROOT}/${source} hash)
  string(APPEND all "\n${source} ${hash}")
endforeach()
string(SHA256 hash "${all}")
string(SUBSTRING ${hash} 0 16 hash)
file(WRITE ${OUT} "\"${hash}\"\n")

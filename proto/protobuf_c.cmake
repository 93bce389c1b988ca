# SPDX-License-Identifier: Apache-2.0
# Makes the copy of a .proto file that protobuf-c compiles: strings become `const char *`.
file(READ ${IN} text)
string(REGEX REPLACE "\n(package [a-z0-9.]+;)\n" "\n\\1\n\nimport \"protobuf-c/protobuf-c.proto\";\noption (pb_c_file).const_strings = true;\n" text "${text}")
file(WRITE ${OUT} "${text}")

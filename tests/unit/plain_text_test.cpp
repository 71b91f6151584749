// What a terminal would obey does not reach it, and all else does.
#include "core/plain_text.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace crimp;

TEST_SUITE("plain_text") {
  TEST_CASE("text stays as it is") {
    for (const std::string text :
         {"", "plain ~", "caf\u00e9", "\u00a0\u00ff", "\u0800\ud7ff\ue000\uffff", "\U00010000\U0010ffff"})
      CHECK((plain_text(text) == text && is_plain_text(text)));
  }

  TEST_CASE("control characters of seven and eight bits are question marks") {
    CHECK(plain_text("\x1b[31m\r\b\x7f") == "?[31m???");
    CHECK(plain_text(std::string("a\0b", 3)) == "a?b");
    CHECK(plain_text("\xc2\x9b"
                     "31m\xc2\x85") == "?31m?");
    for (int c = 0; c < 0xa0; ++c) {
      const bool control = c < 0x20 || c > 0x7e;
      const std::string text =
          c < 0x80 ? std::string(1, static_cast<char>(c)) : "\xc2" + std::string(1, static_cast<char>(c));
      CHECK(plain_text(text) == (control ? "?" : text));
      CHECK(is_plain_text(text) == !control);
    }
    CHECK(plain_text("a\n\tb\x1b", "\n\t") == "a\n\tb?");
    CHECK((is_plain_text("a\n\tb", "\n\t") && !is_plain_text("a\n\tb\x1b", "\n\t") && !is_plain_text("caf\xe9")));
    CHECK(plain_text("\x9b\n", "\n") == "?\n");
  }

  TEST_CASE("bytes that are no UTF-8 are question marks") {
    CHECK(plain_text("\x9b"
                     "31m") == "?31m");
    CHECK(plain_text("\xff\xfe"
                     "a") == "??a");
    CHECK(plain_text("caf\xe9") == "caf?");
    CHECK(plain_text("\xe2\x82") == "??");  // cut
    CHECK(plain_text("\xe2\x82"
                     "a") == "??a");
    CHECK(plain_text("\xc0\x9b\xc1\xbf") == "????");  // longer than need be
    CHECK(plain_text("\xe0\x82\x9b") == "???");
    CHECK(plain_text("\xf0\x80\x82\x9b") == "????");
    CHECK(plain_text("\xed\xa0\x80") == "???");            // half of a pair
    CHECK(plain_text("\xf4\x90\x80\x80\xf5") == "?????");  // beyond the last
  }
}

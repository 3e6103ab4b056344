// SPDX-License-Identifier: Apache-2.0
#include "wire/key.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "base/check.h"

namespace spillway::wire {

// ------------------------------------------------------------------ memory

namespace {

constexpr std::size_t kSlabBytes = 64 * 1024;
constexpr std::size_t kSizes = 11;  // 64 bytes to kSlabBytes
static_assert(kKeyAlignment << (kSizes - 1) == kSlabBytes);

void* map_pages(std::size_t bytes) {
  void* pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) {
    throw std::bad_alloc();
  }
  ::madvise(pages, bytes, MADV_DONTDUMP);
  return pages;
}

class KeySlots {
 public:
  // Never destroyed, because keys in static objects are freed while the process exits.
  static KeySlots& of_process() {
    static auto* slots = new KeySlots;
    return *slots;
  }

  void* take(std::size_t size) {
    const std::lock_guard lock(mutex_);
    if (free_[size] == nullptr) {
      add_slab(size);
    }
    Slot* slot = free_[size];
    free_[size] = slot->next;
    slot->next = nullptr;
    return slot;
  }

  void give_back(void* memory, std::size_t size) {
    const std::lock_guard lock(mutex_);
    free_[size] = new (memory) Slot{free_[size]};
  }

 private:
  struct Slot {
    Slot* next;
  };

  void add_slab(std::size_t size) {
    auto* const slab = static_cast<std::byte*>(map_pages(kSlabBytes));
    const std::size_t bytes = kKeyAlignment << size;
    for (std::size_t at = 0; at < kSlabBytes; at += bytes) {
      free_[size] = new (slab + at) Slot{free_[size]};
    }
  }

  std::mutex mutex_;
  std::array<Slot*, kSizes> free_{};  // by log2 of the slot size in units of kKeyAlignment
};

std::size_t size_for(std::size_t bytes) {
  const std::size_t slots = (std::max(bytes, kKeyAlignment) + kKeyAlignment - 1) / kKeyAlignment;
  return static_cast<std::size_t>(std::bit_width(slots - 1));
}

}  // namespace

void* allocate_key_memory(std::size_t bytes) {
  return bytes > kSlabBytes ? map_pages(bytes) : KeySlots::of_process().take(size_for(bytes));
}

void free_key_memory(void* memory, std::size_t bytes) noexcept {
  if (memory == nullptr) {
    return;
  }
  OPENSSL_cleanse(memory, bytes);
  if (bytes > kSlabBytes) {
    ::munmap(memory, bytes);
  } else {
    KeySlots::of_process().give_back(memory, size_for(bytes));
  }
}

void wipe(base::MutableByteView bytes) {
  OPENSSL_cleanse(bytes.data(), bytes.size());
}

// ------------------------------------------------------------------ derivation

namespace {

struct FreeKdf {
  void operator()(EVP_KDF* kdf) const { EVP_KDF_free(kdf); }
  void operator()(EVP_KDF_CTX* context) const { EVP_KDF_CTX_free(context); }
};

// OpenSSL's parameters are not const, but it does not write to these.
OSSL_PARAM octets(const char* name, const std::uint8_t* data, std::size_t size) {
  return OSSL_PARAM_construct_octet_string(name, const_cast<std::uint8_t*>(data), size);
}

KeyLabel label_of(KeyUse use) {
  switch (use) {
    case KeyUse::kPackets:
      return KeyLabel::kPackets;
    case KeyUse::kSumParts:
      return KeyLabel::kSumParts;
    case KeyUse::kSumResults:
      return KeyLabel::kSumResults;
    case KeyUse::kNumbers:
      return KeyLabel::kNumbers;
    case KeyUse::kJob:
      return KeyLabel::kJob;
    case KeyUse::kTicket:
      return KeyLabel::kTicket;
    case KeyUse::kCommunicator:
      break;
  }
  return KeyLabel::kCommunicator;
}

// HMAC pads salts with zeros, so each layout has one length or encodes how many members follow.
std::vector<std::uint8_t> salt_of(const KeyContext& context) {
  std::vector<std::uint8_t> salt;
  const auto add = [&salt](auto value) {
    salt.resize(salt.size() + sizeof(value));
    base::store_le(salt.data() + salt.size() - sizeof(value), value);
  };
  switch (context.use) {
    case KeyUse::kPackets:
      add(context.epoch);
      add(context.from);
      add(context.to);
      break;
    case KeyUse::kSumParts:
    case KeyUse::kSumResults:
      add(context.epoch);
      break;
    case KeyUse::kNumbers:
    case KeyUse::kJob:
    case KeyUse::kTicket:
      break;
    case KeyUse::kCommunicator:
      SPILLWAY_CHECK(context.members.size() <= UINT16_MAX);
      salt.assign(context.nonce.begin(), context.nonce.end());
      add(context.epoch);
      add(context.channel);
      add(static_cast<std::uint16_t>(context.members.size()));
      for (const std::uint64_t member : context.members) {
        add(member);
      }
      break;
  }
  return salt;
}

}  // namespace

base::Status derive(const RunKey& parent, const KeyContext& context, base::MutableByteView out) {
  return derive(parent.bytes, salt_of(context), label_of(context.use), out);
}

base::Status derive(base::ByteView secret, base::ByteView salt, KeyLabel label,
                    base::MutableByteView out) {
  return hkdf_sha256(secret, salt, kKeyLabels[static_cast<std::size_t>(label)], out);
}

base::Status hkdf_sha256(base::ByteView secret, base::ByteView salt, std::string_view info,
                         base::MutableByteView out) {
  const std::unique_ptr<EVP_KDF, FreeKdf> kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr));
  const std::unique_ptr<EVP_KDF_CTX, FreeKdf> context(kdf ? EVP_KDF_CTX_new(kdf.get()) : nullptr);
  char digest[] = "SHA256";
  // HMAC pads its key with zeros, so by RFC 5869 one zero byte equals an empty salt.
  const std::uint8_t zero = 0;
  const base::ByteView salted = salt.empty() ? base::ByteView(&zero, 1) : salt;
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      octets(OSSL_KDF_PARAM_KEY, secret.data(), secret.size()),
      octets(OSSL_KDF_PARAM_SALT, salted.data(), salted.size()),
      octets(OSSL_KDF_PARAM_INFO, reinterpret_cast<const std::uint8_t*>(info.data()), info.size()),
      OSSL_PARAM_construct_end()};
  if (!context || EVP_KDF_derive(context.get(), out.data(), out.size(), parameters) != 1) {
    return {base::StatusCode::kUnavailable,
            "OpenSSL cannot derive keys; Spillway needs OpenSSL 3 with HKDF-SHA256"};
  }
  return {};
}

}  // namespace spillway::wire

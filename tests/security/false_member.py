# SPDX-License-Identifier: Apache-2.0
"""A malicious member of a job whose members change: it holds the job's ticket, proves that, and is let in. The
messages are those of lib/comm/rendezvous/message.h, lib/elastic/mesh_message.h and lib/elastic/membership/message.h;
the proof of its id is that of lib/elastic/mesh_message.h.
"""
import ctypes
import hashlib
import hmac
import os
import socket
import struct

from harness.patience import patience

MAGIC, PROTOCOL, REFUSAL = b"SWRV", 2, 3
OPENING, CHALLENGE, PROOF = 7, 8, 9
MEMBER, WELCOME, ROSTER, SPEECH = 16, 17, 18, 19
BY_ID, ADMITTED, NEWCOMER = 1, 0, 1
HEADER = struct.Struct("<4sHHI")
SEAL_BYTES = 16
LAST_EPOCH = 2**32 - 1
GET_TAG = 0x10  # EVP_CTRL_GCM_GET_TAG; SET_TAG is the next one
LOST = "that member was lost when its stream ended: start a new process, which joins with an id of its own"
HANGS_UP = "(it hangs up)"  # instead of a reason


def derive(key, salt, label):
    """HKDF-SHA256, 32 bytes."""
    drawn = hmac.digest(salt or b"\0", key, "sha256")
    return hmac.digest(drawn, label.encode() + b"\1", "sha256")


FIELD, A24 = 2**255 - 19, 121665


def x25519(private, public):
    """RFC 7748."""
    scalar = int.from_bytes(private, "little") & ~7 & (2**255 - 1) | 2**254
    u = int.from_bytes(public, "little") & (2**255 - 1)
    x2, z2, x3, z3, swapped = 1, 0, u, 1, 0
    for at in reversed(range(255)):
        bit = scalar >> at & 1
        if swapped != bit:
            x2, x3, z2, z3, swapped = x3, x2, z3, z2, bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        da, cb, aa, bb = d * a % FIELD, c * b % FIELD, a * a % FIELD, b * b % FIELD
        x3, z3 = (da + cb) ** 2 % FIELD, u * (da - cb) ** 2 % FIELD
        x2, z2 = aa * bb % FIELD, (aa - bb) * (aa + A24 * (aa - bb)) % FIELD
    x2, z2 = (x3, z3) if swapped else (x2, z2)
    return (x2 * pow(z2, FIELD - 2, FIELD) % FIELD).to_bytes(32, "little")


class Identity:
    """A process's key, and the member id that belongs to it. A liar names another public key, or another id."""

    def __init__(self, public=None, member=None):
        self.private = os.urandom(32)
        self.public = public or x25519(self.private, (9).to_bytes(32, "little"))
        digest = hashlib.sha256(b"spillway member v1 id" + self.public).digest()
        self.member = member or max(int.from_bytes(digest[:8], "little"), 1)


class Unreadable(Exception):
    """A frame is sealed with other keys."""


class Seal:
    """AES-256-GCM in one direction, by the OpenSSL that the library uses; Python's own library has none."""

    def __init__(self, key):
        self.key, self.number = key, 0
        self.crypto = ctypes.CDLL("libcrypto.so.3")
        for name in ("EVP_CIPHER_CTX_new", "EVP_aes_256_gcm"):
            getattr(self.crypto, name).restype = ctypes.c_void_p

    def _pass(self, beside, text, encrypts, tag):
        crypto, context = self.crypto, ctypes.c_void_p(self.crypto.EVP_CIPHER_CTX_new())
        nonce = struct.pack("<QI", self.number, 0)
        self.number += 1
        out, size = ctypes.create_string_buffer(len(text) + 1), ctypes.c_int()
        cipher = ctypes.c_void_p(crypto.EVP_aes_256_gcm())
        fits = crypto.EVP_CipherInit_ex(context, cipher, None, self.key, nonce, int(encrypts)) == 1
        fits &= crypto.EVP_CipherUpdate(context, None, ctypes.byref(size), beside, len(beside)) == 1
        if text:
            fits &= crypto.EVP_CipherUpdate(context, out, ctypes.byref(size), text, len(text)) == 1
        if not encrypts:
            crypto.EVP_CIPHER_CTX_ctrl(context, GET_TAG + 1, SEAL_BYTES, tag)
        fits &= crypto.EVP_CipherFinal_ex(context, ctypes.create_string_buffer(SEAL_BYTES), ctypes.byref(size)) == 1
        if encrypts:
            crypto.EVP_CIPHER_CTX_ctrl(context, GET_TAG, SEAL_BYTES, tag)
        crypto.EVP_CIPHER_CTX_free(context)
        if not fits:
            raise Unreadable("what came does not open")
        return out.raw[:len(text)]

    def close(self, beside, text):
        tag = ctypes.create_string_buffer(SEAL_BYTES)
        return self._pass(beside, text, True, tag) + tag.raw

    def open(self, beside, sealed):
        return self._pass(beside, sealed[:-SEAL_BYTES], False, sealed[-SEAL_BYTES:])


def text(words):
    words = words if isinstance(words, bytes) else words.encode()
    return struct.pack("<H", len(words)) + words


def card(member, address, name):
    return struct.pack("<Q", member) + text(address) + text(name)


def roster(*cards):
    return struct.pack("<H", len(cards)) + b"".join(cards)


def cards_in(body):
    """(id, address, name) per card."""
    count, at, cards = struct.unpack_from("<H", body)[0], 2, []
    for _ in range(count):
        fields = [struct.unpack_from("<Q", body, at)[0]]
        at += 8
        for _ in range(2):
            size = struct.unpack_from("<H", body, at)[0]
            fields.append(body[at + 2:at + 2 + size].decode())
            at += 2 + size
        cards.append(tuple(fields))
    return cards


class Refused(Exception):
    """The member has said why it does not connect."""


class Stream:
    """A proved and sealed stream to one member of the job."""

    def __init__(self, address, nonce):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout=patience())
        self.sending = self.receiving = self.peers_key = None
        key, own = derive(nonce, b"", "spillway rendezvous v2 unique id"), os.urandom(32)
        self.say(OPENING, bytes([BY_ID]) + own)
        kind, challenge = self.hear()
        assert kind == CHALLENGE, kind
        both = own + challenge[1:33]
        self.key, self.randoms = key, both
        proof_key = derive(key, b"", "spillway rendezvous v2 proof")
        self.say(PROOF, hmac.digest(proof_key, b"guest" + both, hashlib.sha256))
        self.sending = Seal(derive(key, both, "spillway rendezvous v2 guest to host"))
        self.receiving = Seal(derive(key, both, "spillway rendezvous v2 host to guest"))

    def be_member(self, identity, job, version, name, standing=NEWCOMER):
        """Says who this process is, and proves it with the key that it has."""
        own = card(identity.member, "127.0.0.1:1", name)
        hello = job + bytes([standing]) + identity.public + text(version) + own
        self.say(MEMBER, hello)
        peers_hello = self.hear_kind(MEMBER)
        self.peers_key = peers_hello[17:49]
        secret = x25519(identity.private, self.peers_key) + self.key
        salt = self.randoms + identity.public + self.peers_key
        salt += hashlib.sha256(hello).digest() + hashlib.sha256(peers_hello).digest()
        self.sending = Seal(derive(secret, salt, "spillway member v1 from the dialler"))
        self.receiving = Seal(derive(secret, salt, "spillway member v1 to the dialler"))
        self.say(PROOF, b"")

    def say(self, kind, body):
        sealed = self.sending is not None
        header = HEADER.pack(MAGIC, PROTOCOL, kind, len(body) + (SEAL_BYTES if sealed else 0))
        self.socket.sendall(header + (self.sending.close(header, body) if sealed else body))

    def say_raw(self, data):
        self.socket.sendall(data)

    def hear(self):
        """The kind and the body of the next frame."""
        header = self._read(HEADER.size)
        _, _, kind, size = HEADER.unpack(header)
        body = self._read(size)
        return kind, self.receiving.open(header, body) if self.receiving else body

    def hear_kind(self, wanted):
        while True:
            kind, body = self.hear()
            if kind == wanted:
                return body
            if kind == REFUSAL:
                raise Refused(body[1:].decode())

    def _read(self, size):
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the member hung up")
            data += part
        return data

    def close(self):
        self.socket.close()


def first_address(ticket):
    """One of the members that a ticket names; any will do."""
    return ticket.rsplit("/", 1)[0].split(",")[0]


class FalseMember:
    """Joins every member of the job as a newcomer. It dials all of them: nobody listens at its address."""

    def __init__(self, ticket, version, name="false:1"):
        address, nonce = first_address(ticket), ticket.rsplit("/", 1)[1]
        self.nonce, self.version, self.name, self.identity = bytes.fromhex(nonce), version, name, Identity()
        first, cards = self._join(address)
        self.streams, self.addresses = {}, {}  # by the peer's id
        for each, where, _ in cards:
            if each != self.identity.member:
                self.streams[each] = first if where == address else self._join(where)[0]
                self.addresses[each] = where

    def _join(self, address):
        stream = Stream(address, self.nonce)
        stream.be_member(self.identity, self.nonce, self.version, self.name)
        return stream, cards_in(stream.hear_kind(WELCOME)[32:])

    def public_key(self, member):
        """A member's, which every process learns that connects to it."""
        return self.streams[member].peers_key

    def impersonate(self, identity, member, standing):
        """Connects to this member once more, as somebody else. Returns the reason why it is refused, or HANGS_UP."""
        stream = Stream(self.addresses[member], self.nonce)
        try:
            stream.be_member(identity, self.nonce, self.version, self.name, standing)
            stream.hear_kind(SPEECH)
        except Refused as refusal:
            return str(refusal)
        except Unreadable:  # the member's proof, to the process whose public key this one named
            while stream.socket.recv(4096):
                pass
            return HANGS_UP
        except ConnectionError:
            return HANGS_UP
        finally:
            stream.close()
        raise AssertionError(f"{member:x} believes a process that {identity.member:x} is its id")

    def say(self, kind, body):
        """Sends it to every member that still listens; returns how many did."""
        heard = 0
        for stream in self.streams.values():
            try:
                stream.say(kind, body)
                heard += 1
            except OSError:
                pass
        return heard

    def speak(self, speech):
        return self.say(SPEECH, speech)

    def close(self):
        for stream in self.streams.values():
            stream.close()


class Speech:
    """Messages of lib/elastic/membership/message.h, by their kinds' order there."""

    @staticmethod
    def view(epoch, ranks, standbys=()):
        return struct.pack(f"<IH{len(ranks)}QH{len(standbys)}Q", epoch, len(ranks), *ranks, len(standbys), *standbys)

    @classmethod
    def decision(cls, epoch, ranks, ends, step=0, why=b""):
        sources = struct.pack("<H", 0) if ends else struct.pack("<HI", 1, 0)
        handles = struct.pack("<H", 0) if ends else struct.pack("<H", len(ranks)) + text(b"\0" * 40) * len(ranks)
        head = bytes([ends]) + cls.view(epoch, ranks) + text(why) + struct.pack("<Q", step)
        return head + sources + handles + b"\7" * 16

    @classmethod
    def that_need_a_vote(cls, epoch, members):
        """Messages that count only if a member with a vote sends them."""
        ballots = [round << 16 | index for round in (1, 7, 2**32 - 1) for index in range(4)]
        end = cls.decision(epoch + 1, members, ends=True, why=b"the false member says so")
        for ballot in ballots:
            at = struct.pack("<IQ", epoch, ballot)
            yield from (bytes([8]) + at + struct.pack("<BQ", 0, 0) + text("halt"),
                        bytes([8]) + at + struct.pack("<BQ", 1, 5) + text("halt at 5"),
                        bytes([9]) + at, bytes([11]) + at + end, bytes([12]) + at, bytes([13]) + at, bytes([14]) + at)
        for member in members:
            yield from (bytes([4]) + struct.pack("<IQB", epoch, member, cause) for cause in range(3))
        yield from (bytes([5]) + struct.pack("<III", epoch, rank, 9000) for rank in range(3))
        yield bytes([6]) + struct.pack("<IB", epoch, 1)
        yield bytes([7]) + struct.pack("<I", epoch)
        yield from (bytes([16]) + struct.pack("<IIBHII", epoch, 1, kind, 1, 0, 0) + text("asked") for kind in range(4))
        yield bytes([17]) + struct.pack("<II", epoch, 1) + text("no")
        yield bytes([18]) + struct.pack("<IQQ", epoch, 3, 7)

    @classmethod
    def of_another_epoch(cls, epoch, members):
        """Signs of life and greetings with steps and an epoch that no member has reached."""
        yield bytes([3]) + struct.pack("<IQqQB", epoch, 2**64 - 1, 2**63 - 1, 2**64 - 1, 1)
        yield bytes([0]) + struct.pack("<IBB", LAST_EPOCH, 1, 1) + text(b"\xff" * 1024)
        yield bytes([1]) + cls.view(LAST_EPOCH, members)

    CLAIMS = ("leave", "end", "go on")

    @classmethod
    def claim(cls, which, members):
        """A message that sends members away, or a decision without an agreement."""
        if which == "leave":
            return bytes([2]) + struct.pack("<I", 2) + text("made up")
        return bytes([15]) + cls.decision(2, members, ends=which == "end", step=2**64 - 1, why=b"made up")

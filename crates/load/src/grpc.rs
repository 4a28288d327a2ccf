//! Unary calls of gRPC: their HTTP/2 messages, and the rules for a good answer.
//!
//! A call is a POST whose body is one message behind five bytes. Its answer has the same form, with the outcome in
//! trailers (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>). The library `h2` implements HTTP/2. It
//! is made for executors; here the generator's own loops poll it when a socket is ready.
//!
//! The method is our own echo. In the language of Protocol Buffers:
//!
//! ```text
//! package hostgap;
//! message Payload { bytes body = 1; }
//! service Echo { rpc Unary (Payload) returns (Payload); }
//! ```

pub(crate) mod calls;
pub(crate) mod wire;

use bytes::{BufMut, Bytes, BytesMut};

/// The path of the method.
pub(crate) const METHOD: &str = "/hostgap.Echo/Unary";

/// What a body is.
pub(crate) const CONTENT_TYPE: &str = "application/grpc";

/// The prefix of each message: a flag for compression, which is never used here, and its length in four bytes.
pub(crate) const PREFIX_BYTES: usize = 5;

/// The greatest `body` in bytes: what most servers take by default, 4 MiB, holds it.
pub const GRPC_BODY_BYTES_MAX: u32 = 1 << 20;

/// The outcome codes used here; all codes are 0 to [`STATUS_MAX`].
pub(crate) const OK: u16 = 0;
/// The outcome that the client assumes for an answer without one.
pub(crate) const UNKNOWN: u16 = 2;
/// A message that is greater than it may be.
pub(crate) const RESOURCE_EXHAUSTED: u16 = 8;
/// A method that is not there.
pub(crate) const UNIMPLEMENTED: u16 = 12;
/// A message that is none.
pub(crate) const INTERNAL: u16 = 13;
/// The greatest code that gRPC defines.
pub(crate) const STATUS_MAX: u16 = 16;

/// A message with a body of that many bytes, and the prefix before it.
pub(crate) fn message(body_bytes: u32) -> Bytes {
    let mut varint = Vec::new();
    let mut left = body_bytes;
    while left >= 0x80 {
        varint.push(left as u8 | 0x80);
        left >>= 7;
    }
    varint.push(left as u8);
    // An empty field is not written.
    let field_bytes = if body_bytes == 0 { 0 } else { 1 + varint.len() + body_bytes as usize };
    let mut message = BytesMut::with_capacity(PREFIX_BYTES + field_bytes);
    message.put_u8(0);
    message.put_u32(field_bytes as u32);
    if body_bytes > 0 {
        // Field 1, of a type with a length.
        message.put_u8(0x0a);
        message.put_slice(&varint);
        message.put_bytes(b'x', body_bytes as usize);
    }
    message.freeze()
}

/// Whether bytes are one uncompressed message, according to its prefix.
pub(crate) fn is_whole(prefix: [u8; PREFIX_BYTES], bytes: u64) -> bool {
    let [compressed, length @ ..] = prefix;
    compressed == 0 && bytes == PREFIX_BYTES as u64 + u64::from(u32::from_be_bytes(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_of_protocol_buffers() {
        assert_eq!(message(0), [0; 5].as_slice());
        assert_eq!(message(1), [0, 0, 0, 0, 3, 0x0a, 1, b'x'].as_slice());
        // The encoding's own example: 150 is 96 01.
        assert_eq!(message(150)[..8], [0, 0, 0, 0, 153, 0x0a, 0x96, 0x01]);
        for body_bytes in [0, 1, 127, 128, 100_000] {
            let message = message(body_bytes);
            assert!(is_whole(*message.first_chunk().unwrap(), message.len() as u64));
            assert!(!is_whole(*message.first_chunk().unwrap(), message.len() as u64 + 1));
        }
        assert!(!is_whole([1, 0, 0, 0, 0], 5));
    }
}

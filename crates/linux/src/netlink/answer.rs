//! The answers of a netlink socket: messages of a datagram, and what ends an exchange.

use std::io;

use netlink_packet_core::{NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload};

use crate::error::refusal;

/// The header flag of an answer that carries its own attributes (`NLMSGERR_ATTR_*`).
pub(super) const NLM_F_ACK_TLVS: u16 = 0x200;
/// The attribute with the kernel's words.
pub(super) const NLMSGERR_ATTR_MSG: u16 = 1;
/// The size of `struct nlmsghdr`; an error repeats only this much of the request (`NETLINK_CAP_ACK`).
pub(super) const HEADER_BYTES: usize = 16;

/// The next message of a datagram as header and bytes, cut off the front.
pub(super) fn split<'a>(rest: &mut &'a [u8]) -> io::Result<Option<(NetlinkHeader, &'a [u8])>> {
    if rest.len() < HEADER_BYTES {
        return Ok(None);
    }
    let word = |at: usize| u32::from_ne_bytes(rest[at..at + 4].try_into().expect("four bytes"));
    let length = word(0) as usize;
    if length < HEADER_BYTES || length > rest.len() {
        return Err(io::Error::other(format!("a message of {length} bytes in a datagram of {}", rest.len())));
    }
    let mut header = NetlinkHeader::default();
    header.length = word(0);
    header.message_type = u16::from_ne_bytes([rest[4], rest[5]]);
    header.flags = u16::from_ne_bytes([rest[6], rest[7]]);
    header.sequence_number = word(8);
    let bytes = &rest[..length];
    *rest = &rest[length.next_multiple_of(4).min(rest.len())..];
    Ok(Some((header, bytes)))
}

/// Reads one message. `Some` if it ends the exchange: well, or with the kernel's refusal.
pub(super) fn read<M: NetlinkDeserializable>(
    bytes: &[u8],
    answers: &mut Vec<M>,
) -> io::Result<Option<io::Result<()>>> {
    let message = NetlinkMessage::<M>::deserialize(bytes)
        .map_err(|error| io::Error::other(format!("the kernel's answer was not understood: {error}")))?;
    let tlvs = message.header.flags & NLM_F_ACK_TLVS != 0;
    Ok(match message.payload {
        NetlinkPayload::InnerMessage(answer) => {
            answers.push(answer);
            None
        }
        NetlinkPayload::Error(error) => Some(match error.code {
            None => Ok(()),
            Some(code) => {
                let words = error.header.get(HEADER_BYTES..).filter(|_| tlvs).and_then(kernels_words);
                Err(refusal(-code.get(), words))
            }
        }),
        NetlinkPayload::Done(done) if done.code < 0 => {
            Some(Err(refusal(-done.code, kernels_words(&done.extended_ack).filter(|_| tlvs))))
        }
        NetlinkPayload::Done(_) => Some(Ok(())),
        NetlinkPayload::Overrun(_) => Some(Err(io::Error::from_raw_os_error(libc::EOVERFLOW))),
        // Noop, and what a later version of the library may add.
        _ => None,
    })
}

/// Finds the text among the attributes of an error.
fn kernels_words(mut attributes: &[u8]) -> Option<String> {
    while let [a, b, c, d, ..] = attributes {
        let length = usize::from(u16::from_ne_bytes([*a, *b]));
        let kind = u16::from_ne_bytes([*c, *d]);
        let value = attributes.get(4..length)?;
        if kind == NLMSGERR_ATTR_MSG {
            let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
            return Some(String::from_utf8_lossy(text).into_owned());
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An attribute as it lies in a message.
    pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + value.len()).unwrap();
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn kernels_words_are_found_behind_other_attributes() {
        let bytes = [attribute(2, &[1, 0, 0, 0]), attribute(1, b"Nope\0"), attribute(3, b"x")].concat();
        assert_eq!(kernels_words(&bytes).as_deref(), Some("Nope"));
        assert_eq!(kernels_words(&attribute(2, b"abcd")), None);
    }

    #[test]
    fn foreign_bytes_are_errors_not_panics() {
        assert_eq!(kernels_words(&[200, 0, 1, 0, 65]), None);
        assert_eq!(kernels_words(&[0, 0, 1, 0]), None);
        assert!(split(&mut &[0; 16][..]).is_err());
        let mut long = [0; 16];
        long[..4].copy_from_slice(&17_u32.to_ne_bytes());
        assert!(split(&mut &long[..]).is_err());
        assert!(split(&mut &long[..15]).unwrap().is_none());
    }
}

//! Any bytes as a packet that a socket for echo requests reads: nothing panics, what is cut off is not made up, and
//! what is found is in the packet. What a router or a host answers to a request is always found, whatever the options
//! of the IP headers are and however much of the request comes back.
//!
//! An input is the family, in its lowest bit, and the packet. Of the same bytes a request and the answers
//! to it are made.
#![no_main]

/// One module of it, which needs no kernel.
#[path = "../../crates/linux/src/icmp"]
mod icmp {
    pub mod message;

    use std::net::IpAddr;

    use message::IcmpMessage;

    pub fn read(is_v6: bool, from: IpAddr, packet: &[u8]) -> Option<IcmpMessage> {
        message::read(is_v6, from, packet)
    }

    pub fn request(is_v6: bool, id: u16, sequence: u16, bytes: usize) -> Vec<u8> {
        message::request(is_v6, id, sequence, bytes)
    }
}

use std::net::IpAddr;

use icmp::message::{Echo, EchoRefusal, IcmpMessage, checksum};
use icmp::{read, request};
use libfuzzer_sys::fuzz_target;

const FROM: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
const TO_V4: [u8; 4] = [10, 244, 2, 1];
const TO_V6: [u8; 16] = [0xfd, 0, 2, 68, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1];

fuzz_target!(|input: &[u8]| {
    let Some((family, packet)) = input.split_first() else { return };
    let is_v6 = family & 1 == 1;
    let whole = read(is_v6, FROM, packet);
    if let Some(message) = whole {
        check(message, is_v6, packet);
    }
    for bytes in 0..packet.len() {
        let cut = read(is_v6, FROM, &packet[..bytes]);
        assert!(cut.is_none() || cut == whole, "{bytes} of {} bytes: {cut:?}, not {whole:?}", packet.len());
    }
    if let Some((shape, _)) = packet.split_first_chunk::<8>() {
        answers(is_v6, *shape);
    }
});

/// What a message says stands in the packet.
fn check(message: IcmpMessage, is_v6: bool, packet: &[u8]) {
    let (from, id, sequence) = match message {
        IcmpMessage::Reply(Echo { from, id, sequence }) => (from, id, sequence),
        IcmpMessage::Refusal(EchoRefusal { from, to, id, sequence, .. }) => {
            assert_eq!(to.is_ipv6(), is_v6);
            match to {
                IpAddr::V4(v4) => assert!(has(packet, &v4.octets())),
                IpAddr::V6(v6) => assert!(has(packet, &v6.octets())),
            }
            (from, id, sequence)
        }
    };
    assert_eq!(from, FROM);
    assert!(has(packet, &[id.to_be_bytes(), sequence.to_be_bytes()].concat()));
}

fn has(packet: &[u8], bytes: &[u8]) -> bool {
    packet.windows(bytes.len()).any(|window| window == bytes)
}

/// Answers to a request, as hosts and routers make them.
fn answers(is_v6: bool, shape: [u8; 8]) {
    let [id_high, id_low, high, low, size, options, copied_options, returned] = shape;
    let (id, sequence) = (u16::from_be_bytes([id_high, id_low]), u16::from_be_bytes([high, low]));
    let sent = request(is_v6, id, sequence, 8 + usize::from(size));
    assert_eq!(sent.len(), 8 + usize::from(size));
    let is_whole = checksum(&sent) == 0;
    assert!(is_v6 || is_whole);

    let mut reply = ip(is_v6, options);
    let begin = reply.len() * usize::from(!is_v6);
    reply.truncate(begin);
    reply.extend(&sent);
    reply[begin] = if is_v6 { 129 } else { 0 };
    assert_eq!(read(is_v6, FROM, &reply), Some(IcmpMessage::Reply(Echo { from: FROM, id, sequence })));

    // A router returns as much of the packet as it likes, and no less than eight bytes behind the header (RFC 792).
    let mut refusal = ip(is_v6, options);
    refusal.truncate(begin);
    refusal.extend(if is_v6 { [1, 0, 0, 0, 0, 0, 0, 0] } else { [3, 1, 0, 0, 0, 0, 0, 0] });
    refusal.extend(ip(is_v6, copied_options));
    refusal.extend(&sent[..sent.len().min(8 + usize::from(returned))]);
    let to = if is_v6 { IpAddr::from(TO_V6) } else { IpAddr::from(TO_V4) };
    match read(is_v6, FROM, &refusal) {
        Some(IcmpMessage::Refusal(found)) => {
            assert_eq!((found.from, found.to, found.id, found.sequence), (FROM, to, id, sequence));
        }
        other => panic!("{other:?} in {refusal:02x?}"),
    }
}

/// The IP header of a request: over IPv4 with as many words of options as it can have.
fn ip(is_v6: bool, options: u8) -> Vec<u8> {
    if is_v6 {
        let mut header = vec![0; 24];
        header[6] = 58;
        header.extend(TO_V6);
        return header;
    }
    let words = 5 + options % 11;
    let mut header = vec![1; usize::from(words) * 4];
    header[0] = 0x40 | words;
    header[9] = 1;
    header[16..20].copy_from_slice(&TO_V4);
    header
}

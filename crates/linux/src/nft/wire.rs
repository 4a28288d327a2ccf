//! Keys and values of elements as the kernel holds them.
//!
//! Each part is in network order. Parts of a concatenation begin at a multiple of four bytes each, as the registers do
//! that a rule loads them into; a part that stands alone has no padding (`nft_set_ext_key` in
//! net/netfilter/nf_tables_api.c, `concat_type_alloc` of nft).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Datum, Element};

/// Bytes of a register.
const REGISTER: usize = 4;

impl Element {
    /// Its key for the kernel.
    pub(crate) fn key_bytes(&self) -> Vec<u8> {
        bytes(&self.key)
    }

    /// Its value for the kernel; empty for a set.
    pub(crate) fn value_bytes(&self) -> Vec<u8> {
        bytes(&self.value)
    }

    /// The element with the value that the kernel holds, whose parts are of the kinds of this one's. `None` if they
    /// cannot be.
    pub(crate) fn with_value_bytes(&self, mut bytes: &[u8]) -> Option<Element> {
        let mut value = Vec::with_capacity(self.value.len());
        for part in &self.value {
            let length = part.bytes().len();
            value.push(part.of_its_kind(bytes.get(..length)?)?);
            bytes = bytes.get(length.next_multiple_of(REGISTER)..).unwrap_or_default();
        }
        bytes.is_empty().then(|| Element { value, ..self.clone() })
    }
}

fn bytes(parts: &[Datum]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend(part.bytes());
        if parts.len() > 1 {
            bytes.resize(bytes.len().next_multiple_of(REGISTER), 0);
        }
    }
    bytes
}

impl Datum {
    fn bytes(self) -> Vec<u8> {
        match self {
            Datum::Address(IpAddr::V4(address)) => address.octets().to_vec(),
            Datum::Address(IpAddr::V6(address)) => address.octets().to_vec(),
            Datum::Tcp => vec![libc::IPPROTO_TCP as u8],
            Datum::Udp => vec![libc::IPPROTO_UDP as u8],
            Datum::Port(port) => port.to_be_bytes().to_vec(),
        }
    }

    /// Other bytes as a datum of the same kind.
    fn of_its_kind(self, bytes: &[u8]) -> Option<Datum> {
        Some(match self {
            Datum::Address(IpAddr::V4(_)) => {
                Datum::Address(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into())
            }
            Datum::Address(IpAddr::V6(_)) => {
                Datum::Address(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into())
            }
            Datum::Tcp | Datum::Udp => match i32::from(*bytes.first()?) {
                libc::IPPROTO_TCP => Datum::Tcp,
                libc::IPPROTO_UDP => Datum::Udp,
                _ => return None,
            },
            Datum::Port(_) => Datum::Port(u16::from_be_bytes(bytes.try_into().ok()?)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Family;
    use super::*;

    fn element(key: &[Datum], value: &[Datum]) -> Element {
        Element {
            family: Family::Ip,
            table: "t".into(),
            map: "m".into(),
            key: key.to_vec(),
            value: value.to_vec(),
        }
    }

    #[test]
    fn parts_of_a_concatenation_begin_at_registers() {
        let address = Datum::Address("10.1.2.3".parse().unwrap());
        let published = element(&[Datum::Tcp, Datum::Port(8080)], &[address, Datum::Port(80)]);
        assert_eq!(published.key_bytes(), [6, 0, 0, 0, 0x1f, 0x90, 0, 0]);
        assert_eq!(published.value_bytes(), [10, 1, 2, 3, 0, 80, 0, 0]);
        assert_eq!(element(&[Datum::Port(80)], &[]).key_bytes(), [0, 80], "one part alone");
    }

    #[test]
    fn a_value_is_read_back_as_parts_of_the_same_kinds() {
        let [one, other] = ["fd00::1", "fd00::2"].map(|text| Datum::Address(text.parse().unwrap()));
        let wanted = element(&[Datum::Udp, Datum::Port(1)], &[one, Datum::Port(80)]);
        let held = element(&[Datum::Udp, Datum::Port(1)], &[other, Datum::Port(81)]);
        assert_eq!(wanted.with_value_bytes(&held.value_bytes()), Some(held.clone()));
        assert_eq!(wanted.with_value_bytes(&held.value_bytes()[..16]), None, "a part is missing");
        assert_eq!(wanted.with_value_bytes(&[0; 28]), None, "there is one too many");
    }
}

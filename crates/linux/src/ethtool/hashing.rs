//! What a card hashes received flows by, read from it and set.
//!
//! By `SIOCETHTOOL`, which every kernel has. Source: include/uapi/linux/ethtool.h (`struct ethtool_rxnfc` for the
//! fields, `struct ethtool_rxfh` for the key), net/ethtool/ioctl.c.

use super::{Ethtool, FlowType, HashFields, HashKey};
use crate::{Error, IfName, Result};

const GET_FIELDS: u32 = 0x29;
const SET_FIELDS: u32 = 0x2a;
const GET_KEY: u32 = 0x46;
const SET_KEY: u32 = 0x47;
/// Where the number of entries of the table stands, that of bytes of the key, and how the card changes its input.
const TABLE_SIZE: usize = 2;
const KEY_SIZE: usize = 3;
/// One byte each: the hash function, the transformation of the input, and two reserved bytes.
const FUNCTION: usize = 4;
/// The head of `struct ethtool_rxfh`: six words.
const KEY_HEAD: usize = 6;
/// The table stays as it is (`ETH_RXFH_INDIR_NO_CHANGE`).
const SAME_TABLE: u32 = u32::MAX;
/// Bytes of a word.
const WORD: usize = size_of::<u32>();

impl Ethtool {
    /// The fields by which flows of a type are hashed; `None` if the card does not report them or does not know the
    /// flow type.
    pub fn read_hash_fields(&self, link: &IfName, flow: FlowType) -> Result<Option<HashFields>> {
        let mut request = fields_request(GET_FIELDS, flow, 0);
        match self.ioctl(link, &mut request) {
            Ok(()) => Ok(Some(HashFields::of_bits(fields_of(request)))),
            // Drivers return one or the other for a flow type that they do not know.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL)) => Ok(None),
            Err(error) => Err(self.failed("read", fields_words(flow), link, error)),
        }
    }

    /// Sets the fields by which flows of a type are hashed. `EOPNOTSUPP` if they cannot be set. `EINVAL` for a flow
    /// type or a choice of fields that the card lacks: many offer only the addresses, or the addresses with both
    /// ports.
    pub fn write_hash_fields(&self, link: &IfName, flow: FlowType, fields: HashFields) -> Result<()> {
        let mut request = fields_request(SET_FIELDS, flow, fields.bits());
        let set = self.ioctl(link, &mut request);
        set.map_err(|error| self.failed(&format!("set to {fields}"), fields_words(flow), link, error))
    }

    /// The key of the hash; `None` if the card has none, or does not report it.
    pub fn read_hash_key(&self, link: &IfName) -> Result<Option<HashKey>> {
        Ok(self.ask_hash_key(link)?.map(|(_, key)| key))
    }

    /// Sets the key of the hash; the table of flows and all else of the hash stay. `EOPNOTSUPP` if there is no key or
    /// it cannot be set, `EINVAL` for a key of another length than the card's.
    pub fn write_hash_key(&self, link: &IfName, key: &HashKey) -> Result<()> {
        // From Linux 6.8 on the request must repeat the input transformation: zero would change it.
        let now = self.ask_hash_key(link)?.map_or(0, |(now, _)| now);
        let mut request = key_request(SET_KEY, SAME_TABLE, key.bytes());
        request[FUNCTION] = without_function(now);
        let set = self.ioctl(link, &mut request);
        set.map_err(|error| self.failed("set", KEY, link, error))
    }

    /// The word of the function as the kernel reports it, and the key.
    fn ask_hash_key(&self, link: &IfName) -> Result<Option<(u32, HashKey)>> {
        // The first question is for the length.
        let mut question = key_request(GET_KEY, 0, &[]);
        match self.ioctl(link, &mut question) {
            Ok(()) => {}
            Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP)) => return Ok(None),
            Err(error) => return Err(self.failed("read", KEY, link, error)),
        }
        let reported = question[KEY_SIZE];
        if reported == 0 {
            return Ok(None);
        }
        let length = usize::try_from(reported).ok().filter(|length| *length <= HashKey::BYTES_MAX);
        let Some(length) = length else {
            let attempted = format!("read {KEY} of {link} in {}", self.place);
            return Err(Error::invalid(attempted, format!("a key of {reported} bytes")));
        };
        let mut request = key_request(GET_KEY, 0, &vec![0; length]);
        self.ioctl(link, &mut request).map_err(|error| self.failed("read", KEY, link, error))?;
        let bytes = request[KEY_HEAD..].iter().flat_map(|word| word.to_ne_bytes()).take(length).collect();
        Ok(HashKey::new(bytes).map(|key| (request[FUNCTION], key)))
    }
}

/// What an error is about.
const KEY: &str = "the hash key";

fn fields_words(flow: FlowType) -> String {
    format!("the hash fields of {flow}")
}

/// Command, flow type, and 64 bits of fields: the part of `struct ethtool_rxnfc` that these two commands have.
fn fields_request(command: u32, flow: FlowType, fields: u64) -> [u32; 4] {
    let [a, b, c, d, e, f, g, h] = fields.to_ne_bytes();
    [command, flow.number(), u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])]
}

fn fields_of(request: [u32; 4]) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (request[2].to_ne_bytes(), request[3].to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

/// The header, then the key in whole words; a table that is not part of the request takes no space between them.
fn key_request(command: u32, table_size: u32, key: &[u8]) -> Vec<u32> {
    let mut request = vec![0; KEY_HEAD];
    request[0] = command;
    request[TABLE_SIZE] = table_size;
    request[KEY_SIZE] = u32::try_from(key.len()).unwrap_or(u32::MAX);
    for bytes in key.chunks(WORD) {
        let mut word = [0; WORD];
        word[..bytes.len()].copy_from_slice(bytes);
        request.push(u32::from_ne_bytes(word));
    }
    request
}

/// The word with the function left as it is (`ETH_RSS_HASH_NO_CHANGE`, a zero in the first byte).
fn without_function(word: u32) -> u32 {
    let [_, combined, ..] = word.to_ne_bytes();
    u32::from_ne_bytes([0, combined, 0, 0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_kernel_s_form() {
        let fields = fields_request(SET_FIELDS, FlowType::Udp6, 0xf0);
        assert_eq!((fields[0], fields[1], fields_of(fields)), (0x2a, 0x06, 0xf0));
        let bytes: Vec<u8> = fields.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(bytes[8..], 0xf0_u64.to_ne_bytes(), "`data` is 64 bits at byte 8");
        let key = key_request(SET_KEY, SAME_TABLE, &[1, 2, 3, 4, 5]);
        assert_eq!(key[..KEY_HEAD], [0x47, 0, u32::MAX, 5, 0, 0]);
        assert_eq!(key[KEY_HEAD..], [[1, 2, 3, 4], [5, 0, 0, 0]].map(u32::from_ne_bytes));
        assert_eq!(key_request(GET_KEY, 0, &[]), [0x46, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_new_key_keeps_the_function_and_how_fields_are_combined() {
        let word = u32::from_ne_bytes([1, 2, 3, 4]);
        assert_eq!(without_function(word).to_ne_bytes(), [0, 2, 0, 0]);
    }
}

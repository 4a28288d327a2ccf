//! The name of an interface as part of a unit's id.

/// Letters, digits and `_` stand for themselves and all else as `-` with its code, so that no two names become one.
pub(crate) fn encode(ifname: &str) -> String {
    let encoded = ifname.bytes().map(|byte| match byte {
        byte if byte.is_ascii_alphanumeric() || byte == b'_' => char::from(byte).to_string(),
        other => format!("-{other:02x}"),
    });
    encoded.collect()
}

/// The name that was encoded so; `None` if none was.
pub(crate) fn decode(encoded: &str) -> Option<String> {
    let (first, rest) = encoded.split_once('-').map_or((encoded, None), |(first, rest)| (first, Some(rest)));
    let mut name = first.as_bytes().to_vec();
    for part in rest.into_iter().flat_map(|rest| rest.split('-')) {
        let (code, plain) = part.split_at_checked(2)?;
        name.push(u8::from_str_radix(code, 16).ok()?);
        name.extend_from_slice(plain.as_bytes());
    }
    String::from_utf8(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_encoded_is_decoded() {
        assert_eq!(decode(&encode("a-.b_ä")).as_deref(), Some("a-.b_ä"));
    }
}

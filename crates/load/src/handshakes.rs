//! The account of TLS handshakes.

/// How connections in TLS began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Handshakes {
    /// With certificates and keys.
    pub full: u64,
    /// With the keys of an earlier session.
    pub resumed: u64,
}

impl Handshakes {
    /// Counts a connection that is up. One without TLS had no handshake.
    pub(crate) fn count(&mut self, resumed: Option<bool>) {
        match resumed {
            Some(true) => self.resumed += 1,
            Some(false) => self.full += 1,
            None => {}
        }
    }

    pub(crate) fn add(&mut self, other: Handshakes) {
        self.full += other.full;
        self.resumed += other.resumed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_without_tls_had_no_handshake() {
        let mut handshakes = Handshakes::default();
        [Some(false), None, Some(true), Some(true)].into_iter().for_each(|resumed| handshakes.count(resumed));
        assert_eq!(handshakes, Handshakes { full: 1, resumed: 2 });
        handshakes.add(handshakes);
        assert_eq!(handshakes, Handshakes { full: 2, resumed: 4 });
    }
}

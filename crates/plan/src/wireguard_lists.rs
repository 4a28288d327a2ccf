//! WireGuard devices, of which the kernel gives the whole list of peers and no single one.
//!
//! A plan asks for each peer that it adds, and undo asks for each that it removes. If each question had a list of its
//! own, 10,000 peers would cost 50 million. A list of one run therefore answers as many questions about peers as it has
//! of them, and then a new one is taken: of N peers that are added one after the other about 2N are listed, in lists
//! that double their length. What the run itself has changed is never answered from an older list. What another program
//! changes meanwhile may be: a peer of the same key that it adds is then overwritten, since the kernel adds none only
//! if it is new.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use linux::PublicKey;
use linux::netlink::WireGuardDevice;

/// The lists of a namespace's devices, by the index of the link: a name may go to another device.
#[derive(Debug, Default)]
pub(crate) struct WireGuardLists(RefCell<BTreeMap<u32, Listed>>);

/// How long a list is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lasts {
    /// For one question: the next one asks the kernel again.
    Once,
    /// As many questions about peers as it has of them.
    ByLength,
    /// As long as it is held.
    Always,
}

#[derive(Debug)]
struct Listed {
    /// `None`: the link is of another kind.
    device: Option<WireGuardDevice>,
    /// So many questions about peers it may still answer.
    left: usize,
    /// What was changed since.
    changed: BTreeSet<PublicKey>,
}

impl WireGuardLists {
    /// Answers a question about a device, and about one peer of it if it names one. `list` asks the kernel.
    pub(crate) fn ask<T, E>(
        &self,
        index: u32,
        peer: Option<&PublicKey>,
        lasts: Lasts,
        list: impl FnOnce() -> Result<Option<WireGuardDevice>, E>,
        answer: impl FnOnce(&WireGuardDevice) -> T,
    ) -> Result<Option<T>, E> {
        let mut devices = self.0.borrow_mut();
        let answers =
            |listed: &Listed| peer.is_none_or(|peer| listed.left > 0 && !listed.changed.contains(peer));
        if !devices.get(&index).is_some_and(answers) {
            devices.insert(index, Listed::new(list()?, lasts));
        }
        let listed = devices.get_mut(&index).expect("it is there, or was listed just now");
        listed.left -= usize::from(peer.is_some());
        Ok(listed.device.as_ref().map(answer))
    }

    /// Notes that a peer is about to be changed.
    pub(crate) fn note_change(&self, index: u32, peer: PublicKey) {
        if let Some(listed) = self.0.borrow_mut().get_mut(&index) {
            listed.changed.insert(peer);
        }
    }

    /// Forgets a device's list.
    pub(crate) fn forget(&self, index: u32) {
        self.0.borrow_mut().remove(&index);
    }
}

impl Listed {
    fn new(device: Option<WireGuardDevice>, lasts: Lasts) -> Listed {
        let peers = device.as_ref().map_or(0, |device| device.peers.len());
        let left = match lasts {
            Lasts::Once => 1,
            Lasts::ByLength => peers.max(1),
            Lasts::Always => usize::MAX,
        };
        Listed { device, left, changed: BTreeSet::new() }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn key(number: u32) -> PublicKey {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&number.to_ne_bytes());
        PublicKey(bytes)
    }

    /// A device, and how much of it was listed.
    #[derive(Default)]
    struct CountedDevice {
        device: WireGuardDevice,
        lists: usize,
        peers: usize,
    }

    impl CountedDevice {
        fn has(&mut self, devices: &WireGuardLists, number: u32, lasts: Lasts) -> bool {
            let list = || {
                self.lists += 1;
                self.peers += self.device.peers.len();
                Ok::<_, Infallible>(Some(self.device.clone()))
            };
            let has = |device: &WireGuardDevice| device.peers.contains_key(&key(number));
            let Ok(found) = devices.ask(7, Some(&key(number)), lasts, list, has);
            found.expect("it is a device")
        }
    }

    #[test]
    fn what_is_listed_grows_with_the_peers_and_not_with_their_square() {
        for count in [100, 1_000, 10_000] {
            let (devices, mut counted) = (WireGuardLists::default(), CountedDevice::default());
            for number in 0..count {
                assert!(!counted.has(&devices, number, Lasts::ByLength), "{number} of {count}");
                devices.note_change(7, key(number));
                counted.device.peers.insert(key(number), Default::default());
            }
            let added = count as usize;
            assert!(
                counted.peers <= 2 * added && counted.lists <= 20,
                "{} in {}",
                counted.peers,
                counted.lists
            );

            // Undo begins with lists of its own, and goes backwards.
            let devices = WireGuardLists::default();
            (counted.lists, counted.peers) = (0, 0);
            for number in (0..count).rev() {
                assert!(counted.has(&devices, number, Lasts::ByLength), "{number} of {count}");
                devices.note_change(7, key(number));
                counted.device.peers.remove(&key(number));
            }
            assert_eq!((counted.lists, counted.peers), (1, added));
        }
    }

    #[test]
    fn what_was_changed_is_asked_anew() {
        let (devices, mut counted) = (WireGuardLists::default(), CountedDevice::default());
        counted.device.peers.extend((0..10).map(|number| (key(number), Default::default())));
        assert!(counted.has(&devices, 3, Lasts::ByLength) && !counted.has(&devices, 10, Lasts::ByLength));
        devices.note_change(7, key(10));
        counted.device.peers.insert(key(10), Default::default());
        assert!(counted.has(&devices, 4, Lasts::ByLength));
        assert_eq!(counted.lists, 1);
        assert!(counted.has(&devices, 10, Lasts::ByLength));
        assert_eq!(counted.lists, 2);
        devices.forget(7);
        assert!(counted.has(&devices, 10, Lasts::ByLength));
        assert_eq!(counted.lists, 3);
    }

    #[test]
    fn another_programs_change_shows_at_once_or_after_as_many_questions_as_there_are_peers() {
        for (lasts, stale) in [(Lasts::Once, 0), (Lasts::ByLength, 4), (Lasts::Always, 100)] {
            let (devices, mut counted) = (WireGuardLists::default(), CountedDevice::default());
            counted.device.peers.extend((0..5).map(|number| (key(number), Default::default())));
            assert!(counted.has(&devices, 0, lasts));
            counted.device.peers.clear();
            let seen = (0..100).take_while(|_| counted.has(&devices, 0, lasts)).count();
            assert_eq!(seen, stale, "{lasts:?}");
        }
    }
}

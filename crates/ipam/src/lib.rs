//! Addresses of pods on a node, and their owners.
//!
//! A [`Store`] is a directory of a network with a file for each reserved address, in exactly the format of the CNI
//! project's plugin `host-local`. A node can change from one to the other and back, or use both at once, and no address
//! is lost or given twice, unless both are used in a boot and the clock is set forward by more than ten seconds between
//! the first reservation of `host-local` and that of a [`Store`]: to this, the earlier ones look as if they were of the
//! boot before ([`Store::release_of_earlier_boots`]).
//!
//! | file | content |
//! |---|---|
//! | an address: `10.1.0.7`, `fd00::7` | `<container>\r\n<interface>`, or from old versions the container alone |
//! | `last_reserved_ip.<set>` | the address that was last taken from the range set of that index, a hint |
//! | `lock` | nothing; it is locked (`flock`) by whoever changes something |
//!
//! Two more files are ours. `host-local` reads them, as it reads every file, and they match no container:
//! `.hostgap-released` says which addresses were released a moment ago and whether reservations of earlier boots are
//! gone; `.hostgap-new` is a file that is being written, and exists only while the lock is held. If its writer was
//! killed, the next one that takes the lock removes it.
//!
//! What is better than in `host-local`: an address is not given again right after its release, as long as there is
//! another; a killed process leaves no file without content; what a restart of the machine left behind can be released.
//!
//! This is the store alone. It knows no namespace, sets no address on an interface and speaks no protocol.

mod boot;
mod choice;
mod directory;
mod error;
mod key;
mod range;
mod released;
mod reserving;
mod store;

pub use boot::{Boot, Moment};
pub use error::IpamError;
pub use key::{Holder, Key, KeyError};
pub use range::{Range, RangeError, RangeSets};
pub use reserving::Reserved;
pub use store::{DATA_DIR, QUARANTINE, Store};

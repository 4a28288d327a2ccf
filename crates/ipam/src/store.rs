//! The addresses of a network on this node: reserve, release, list.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::boot::{Boot, Moment};
use crate::choice::{self, Occupied};
use crate::directory::{Directory, Listing};
use crate::key::is_name;
use crate::released::Released;
use crate::reserving::{Reserved, Reserving, by_set};
use crate::{Holder, IpamError, Key, RangeSets};

/// Where `host-local` keeps the addresses of all networks by default.
pub const DATA_DIR: &str = "/var/lib/cni/networks";
/// For how long an address rests after its release. Peers go on sending to the pod that had it until they notice: a
/// client's retries, a service's list of endpoints, entries of neighbours and of connection tracking. Within half a
/// minute most of them do.
pub const QUARANTINE: Duration = Duration::from_secs(30);

/// The addresses of a network on this node. It holds nothing open; each call takes the lock for itself, so that threads
/// and processes may use stores of the same network at once, and `host-local` too.
#[derive(Debug, Clone)]
pub struct Store {
    path: PathBuf,
    quarantine: Duration,
    boot: Boot,
}

impl Store {
    /// The store of a network, in a directory with its name below `data_dir` ([`DATA_DIR`]). The directory is made with
    /// the first reservation.
    ///
    /// # Errors
    /// [`IpamError::BadNetwork`]: the name must begin with a letter or digit and go on with those, `_`, `.` and `-`, as
    /// the CNI specification has it.
    pub fn open(data_dir: &Path, network: &str) -> Result<Store, IpamError> {
        if !is_name(network) {
            return Err(IpamError::BadNetwork { network: network.to_owned() });
        }
        let path = data_dir.join(network);
        Ok(Store { path, quarantine: QUARANTINE, boot: Boot::of_this_machine() })
    }

    /// The same with another time of rest after a release, instead of [`QUARANTINE`]. Zero is none.
    #[must_use]
    pub fn with_quarantine(self, quarantine: Duration) -> Store {
        Store { quarantine, ..self }
    }

    /// The same on another boot: for tests.
    #[must_use]
    pub fn with_boot(self, boot: Boot) -> Store {
        Store { boot, ..self }
    }

    /// The directory of the network.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reserves one address from each set for a key, or none at all. What earlier boots left behind is released before
    /// ([`Store::release_of_earlier_boots`]).
    ///
    /// From each set it is the asked-for address (`wanted`) if one is of this set, and otherwise the next after the
    /// last one given. A gateway is never given. What was released less than the quarantine ago comes last, the longest
    /// released first, unless it is asked for.
    ///
    /// If the process is killed in the middle, some of the addresses may stay reserved for the key; [`Store::release`],
    /// which a runtime calls after an ADD that failed, frees them.
    ///
    /// # Errors
    /// [`IpamError::HasAlready`], [`IpamError::NoneLeft`]; about asked-for addresses [`IpamError::Taken`],
    /// [`IpamError::NotInRange`], [`IpamError::Gateway`], [`IpamError::SecondOfSet`]; what a full disk or an unreadable
    /// file causes; and those of the release.
    pub fn reserve(
        &self,
        key: &Key,
        sets: &RangeSets,
        wanted: &[IpAddr],
    ) -> Result<Vec<Reserved>, IpamError> {
        let per_set = by_set(key, sets, wanted)?;
        let directory = Directory::make(&self.path)?;
        let resting = self.resting(&directory)?;
        let listing = listing_of(&directory)?;
        let addresses: Vec<IpAddr> = listing.of(key).map(|(address, _)| *address).collect();
        if !addresses.is_empty() {
            return Err(IpamError::HasAlready { key: key.clone(), addresses });
        }
        let occupied = Occupied::new(listing.reserved.into_keys(), sets, resting);
        reserve_in(&directory, (key, sets, &per_set), occupied)
    }

    /// The same for a key that the caller knows to be new: whether it has addresses already is not looked for. That
    /// would take reading a file for each address of the network.
    ///
    /// # Errors
    /// As of [`Store::reserve`], without [`IpamError::HasAlready`].
    pub fn reserve_for_new(
        &self,
        key: &Key,
        sets: &RangeSets,
        wanted: &[IpAddr],
    ) -> Result<Vec<Reserved>, IpamError> {
        let per_set = by_set(key, sets, wanted)?;
        let directory = Directory::make(&self.path)?;
        let resting = self.resting(&directory)?;
        let occupied = Occupied::new(directory.names()?.into_iter(), sets, resting);
        reserve_in(&directory, (key, sets, &per_set), occupied)
    }

    /// Releases all addresses of a key, and says which; none is fine, too, so that it can be called again. If no file
    /// names the interface, those of old versions that name the container alone count as the key's.
    ///
    /// An address is released even if it cannot be noted that it should rest, as on a full disk.
    ///
    /// # Errors
    /// The lock cannot be had, or [`IpamError::Unreleased`] after all else was released. A file system that is
    /// read-only is an error only if the key has an address.
    pub fn release(&self, key: &Key) -> Result<Vec<IpAddr>, IpamError> {
        let directory = match Directory::lock_if_there(&self.path) {
            Ok(Some(directory)) => directory,
            Ok(None) => return Ok(Vec::new()),
            Err(error) if error.is_read_only() && self.reserved(key)?.is_empty() => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let listing = directory.list()?;
        let exact: Vec<_> =
            listing.of(key).filter(|(_, holder)| holder.ifname.is_some()).map(clone_of).collect();
        // A file that cannot be read may be the key's only if none that can be read is.
        let (found, unread) = match exact.is_empty() {
            true => (listing.of(key).map(clone_of).collect(), listing.unread),
            false => (exact, Vec::new()),
        };
        let released = self.remove(&directory, found, unread)?;
        Ok(released.into_iter().map(|(address, _)| address).collect())
    }

    /// Releases what is not to be kept (`gc`), and says what that was. `is_kept` is asked under the lock, beside
    /// which no address is reserved: a process that looks for attachments that have just begun sees all that have an
    /// address.
    ///
    /// # Errors
    /// As of [`Store::release`].
    pub fn keep_only(&self, is_kept: impl Fn(&Holder) -> bool) -> Result<Vec<(IpAddr, Holder)>, IpamError> {
        let Some(directory) = Directory::lock_if_there(&self.path)? else { return Ok(Vec::new()) };
        let listing = directory.list()?;
        let others = listing.reserved.iter().filter(|(_, holder)| !is_kept(holder)).map(clone_of).collect();
        self.remove(&directory, others, listing.unread)
    }

    /// Releases reservations that earlier boots of the machine left behind, once in each boot, and says which. After a
    /// restart no container of the boot before exists, and for most of them no runtime calls DEL.
    ///
    /// A reservation is of an earlier boot if its file was written more than ten seconds before this boot began. Files
    /// have their times from the clock on the wall, and when the boot began is that clock less the time since boot. So
    /// each reservation looks for this first. If the clock is set forward after containers got addresses, their
    /// files look as if they were older than the boot. That is why a second call in a boot does nothing, even if the
    /// first one found nothing. If the clock was behind at the first call, some reservations stay that should have
    /// gone, and [`Store::keep_only`] releases them.
    ///
    /// In a directory that no store has had before nothing is released: `host-local` has given out what is there,
    /// perhaps in this boot and before the clock was set.
    ///
    /// They do not rest: the connections of their pods ended with the boot, too. Nothing is released where the id of
    /// the boot cannot be read.
    ///
    /// # Errors
    /// As of [`Store::release`]; or the note that it was done cannot be written.
    pub fn release_of_earlier_boots(&self) -> Result<Vec<(IpAddr, Holder)>, IpamError> {
        let Some(directory) = Directory::lock_if_there(&self.path)? else { return Ok(Vec::new()) };
        // Where the id of the boot is unknown, an earlier call cannot be known either.
        let Some(mut notes) = self.notes(&directory)? else { return Ok(Vec::new()) };
        self.sweep(&directory, &mut notes)
    }

    fn sweep(&self, directory: &Directory, notes: &mut Released) -> Result<Vec<(IpAddr, Holder)>, IpamError> {
        if notes.is_swept && directory.has_notes() {
            return Ok(Vec::new());
        }
        let Listing { reserved, unread: mut failures } =
            if notes.is_swept { Listing::default() } else { directory.list()? };
        let now = self.boot.now();
        let mut released = Vec::new();
        for (address, holder) in reserved {
            match release_if_older(directory, address, &now) {
                Ok(true) => released.push((address, holder)),
                Ok(false) => {}
                Err(error) => failures.push(error),
            }
        }
        // Also if something failed: it must not be tried again when the clock may have been set.
        notes.is_swept = true;
        if let Err(error) = directory.set_notes(&notes.bytes()) {
            failures.push(error);
        }
        reported(released, failures)
    }

    /// The addresses of a key, in their order.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn reserved(&self, key: &Key) -> Result<Vec<IpAddr>, IpamError> {
        let Some(directory) = Directory::look(&self.path)? else { return Ok(Vec::new()) };
        Ok(listing_of(&directory)?.of(key).map(|(address, _)| *address).collect())
    }

    /// All reserved addresses in their order, with their owners.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn all(&self) -> Result<Vec<(IpAddr, Holder)>, IpamError> {
        let Some(directory) = Directory::look(&self.path)? else { return Ok(Vec::new()) };
        Ok(listing_of(&directory)?.reserved.into_iter().collect())
    }

    /// How many addresses each set has left, those that rest among them, and what the next reservation would release of
    /// earlier boots ([`Store::release_of_earlier_boots`]); nothing is released here. A set of 2^128 is counted as
    /// quickly as a small one.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn left(&self, sets: &RangeSets) -> Result<Vec<u128>, IpamError> {
        let mut busy: BTreeSet<IpAddr> = sets.gateways().iter().copied().collect();
        if let Some(directory) = Directory::look(&self.path)? {
            let is_swept = self.notes(&directory)?.is_none_or(|notes| notes.is_swept);
            let now = self.boot.now();
            for address in listing_of(&directory)?.reserved.into_keys() {
                if is_swept || !is_older(&directory, address, &now)? {
                    busy.insert(address);
                }
            }
        }
        Ok(sets.sets().iter().map(|set| choice::left(set, &busy)).collect())
    }

    /// What is noted of this boot; `None` where the boot has no id. A directory without any notes is another program's,
    /// and counts as swept. Notes that cannot be read now may say the same: to sweep once more could release addresses
    /// of this boot.
    fn notes(&self, directory: &Directory) -> Result<Option<Released>, IpamError> {
        let Some(id) = self.boot.id() else { return Ok(None) };
        let mut notes = Released::read(&directory.notes()?, &id);
        notes.is_swept |= !directory.has_notes();
        Ok(Some(notes))
    }

    /// The addresses that rest, the oldest first, after the sweep of this boot.
    fn resting(&self, directory: &Directory) -> Result<Vec<IpAddr>, IpamError> {
        let Some(mut notes) = self.notes(directory)? else { return Ok(Vec::new()) };
        self.sweep(directory, &mut notes)?;
        Ok(notes.resting(self.boot.now().since_boot, self.quarantine))
    }

    /// Removes files, and goes on after one that fails.
    fn remove(
        &self,
        directory: &Directory,
        found: Vec<(IpAddr, Holder)>,
        mut failures: Vec<IpamError>,
    ) -> Result<Vec<(IpAddr, Holder)>, IpamError> {
        let addresses: Vec<IpAddr> = found.iter().map(|(address, _)| *address).collect();
        // Before the files go: if this process is killed between the two, an address rests that is still reserved,
        // which means nothing. The other order would give it away at once.
        if !addresses.is_empty()
            && let Ok(Some(mut notes)) = self.notes(directory)
        {
            notes.add(&addresses, self.boot.now().since_boot, self.quarantine);
            // To keep the address would be worse than to give it too early.
            let _ = directory.set_notes(&notes.bytes());
        }
        let mut released = Vec::new();
        for (address, holder) in found {
            match directory.release(address) {
                Ok(()) => released.push((address, holder)),
                Err(error) => failures.push(error),
            }
        }
        reported(released, failures)
    }
}

fn reserve_in(
    directory: &Directory,
    (key, sets, wanted): (&Key, &RangeSets, &[Option<IpAddr>]),
    occupied: Occupied,
) -> Result<Vec<Reserved>, IpamError> {
    let mut reserving = Reserving { directory, key, sets, occupied, done: Vec::new() };
    reserving.all(wanted).inspect_err(|_| reserving.undo())?;
    Ok(reserving.done)
}

impl Listing {
    /// The addresses that a key has in all sets.
    fn of<'a>(&'a self, key: &'a Key) -> impl Iterator<Item = (&'a IpAddr, &'a Holder)> {
        self.reserved.iter().filter(|(_, holder)| holder.is(key))
    }
}

/// All that is reserved, if every file can be read.
fn listing_of(directory: &Directory) -> Result<Listing, IpamError> {
    let mut listing = directory.list()?;
    match listing.unread.pop() {
        Some(error) => Err(error),
        None => Ok(listing),
    }
}

/// Releases an address whose file was written before the boot; false if it was written after it, or is gone.
fn release_if_older(directory: &Directory, address: IpAddr, now: &Moment) -> Result<bool, IpamError> {
    let is_older = is_older(directory, address, now)?;
    if is_older {
        directory.release(address)?;
    }
    Ok(is_older)
}

/// Whether the file of an address was written before the boot; false if it is gone.
fn is_older(directory: &Directory, address: IpAddr, now: &Moment) -> Result<bool, IpamError> {
    Ok(directory.written(address)?.is_some_and(|written| now.is_of_earlier_boot(written)))
}

fn clone_of((address, holder): (&IpAddr, &Holder)) -> (IpAddr, Holder) {
    (*address, holder.clone())
}

fn reported(
    released: Vec<(IpAddr, Holder)>,
    failures: Vec<IpamError>,
) -> Result<Vec<(IpAddr, Holder)>, IpamError> {
    if failures.is_empty() { Ok(released) } else { Err(IpamError::Unreleased { released, failures }) }
}

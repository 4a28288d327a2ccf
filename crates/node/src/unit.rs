//! The unit of an attachment: its container and interface, its number, and how all of it goes.

use std::fs;
use std::path::{Path, PathBuf};

use cni::{Attachment, Failure};
use linux::IfName;
use plan::{BookError, Journal, Kernel, Undone, Unit};
use serde::{Deserialize, Serialize};

use crate::Home;
use crate::addresses::Leases;
use crate::encoded_ifname::encode;
use crate::failures::{busy, invalid_call, of_book, of_file, refused, with_consequence};
use crate::network_unit::NetworkUnit;
use crate::numbers::Numbers;

/// The file of a unit that says whose it is. It is written before anything else is done.
const RECORD: &str = "attachment.json";
/// The name of a unit's journal.
pub(crate) const JOURNAL: &str = "pod";

/// The container and interface whose attachment a unit is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) network: String,
    pub(crate) container_id: String,
    pub(crate) ifname: String,
    /// Of which links and Ethernet addresses are made.
    pub(crate) number: u16,
    /// The place among the container's interfaces, over all networks: the lowest that none of them had. Their routes
    /// stand behind those of lower ones.
    #[serde(default)]
    pub(crate) rank: u32,
    /// The directory of addresses, so that DEL finds them whatever the configuration says by then. `None`: the node's
    /// own; records of earlier versions have nothing else.
    #[serde(default)]
    pub(crate) data_dir: Option<PathBuf>,
    /// The bridge, where the network may have several.
    #[serde(default)]
    pub(crate) bridge: Option<IfName>,
    /// The address of the device that it gets.
    #[serde(default)]
    pub(crate) device: Option<String>,
}

impl Record {
    /// The unit that the attachment rests on.
    pub(crate) fn network_unit(&self) -> NetworkUnit {
        NetworkUnit::new(&self.network, self.bridge.clone())
    }

    /// Where its addresses are.
    pub(crate) fn leases(&self, home: &Home) -> Leases {
        Leases::at(self.data_dir.as_deref().unwrap_or(home.leases()), &self.network)
    }
}

/// The name of a unit. No two attachments have one name.
pub(crate) fn id_of(container_id: &str, ifname: &str) -> String {
    format!("{container_id}.i-{}", encode(ifname))
}

/// Whose a unit is; `None` if there is none, or if its process died before it said so.
pub(crate) fn recorded(home: &Home, id: &str) -> Option<Record> {
    read(&home.attachments().path().join(id))
}

fn read(directory: &Path) -> Option<Record> {
    serde_json::from_slice(&fs::read(directory.join(RECORD)).ok()?).ok()
}

/// Begins the unit of an attachment. What a dead process left of it is taken back first.
///
/// # Errors
/// It stands already, another process works on it, or its files cannot be written.
pub(crate) fn begin(
    home: &Home,
    leases: &Leases,
    network: &NetworkUnit,
    (attachment, device): (&Attachment, Option<&str>),
    kernel: &mut Kernel,
) -> Result<(Unit, Record), Failure> {
    let (container_id, ifname) = (&attachment.container_id, &attachment.ifname);
    let (book, id) = (home.attachments(), id_of(container_id, ifname));
    loop {
        match book.begin_as(&id) {
            Ok(unit) => {
                return match record(home, leases, network, (attachment, device), &unit) {
                    Ok(record) => Ok((unit, record)),
                    Err(failure) => {
                        Err(with_consequence(failure, remove(home, unit, kernel, &mut Vec::new())))
                    }
                };
            }
            Err(BookError::Exists { .. }) => {}
            Err(error) => return Err(of_book(&error)),
        }
        match book.take_over_dead(&id) {
            Ok(Some(unit)) => remove(home, unit, kernel, &mut Vec::new())?,
            Ok(None) => {
                let of = recorded(home, &id).map_or_else(|| "a network".to_owned(), |record| record.network);
                let why = format!(
                    "interface {ifname} of container {container_id} is attached to {of} already; DEL takes it back"
                );
                return Err(invalid_call(why));
            }
            // It went meanwhile.
            Err(BookError::Unknown { .. }) => {}
            Err(BookError::Held { pid, .. }) => return Err(busy(container_id, ifname, pid)),
            Err(error) => return Err(of_book(&error)),
        }
    }
}

/// Gives a unit its number, and writes down whose it is.
fn record(
    home: &Home,
    leases: &Leases,
    network: &NetworkUnit,
    (attachment, device): (&Attachment, Option<&str>),
    unit: &Unit,
) -> Result<Record, Failure> {
    let attempted = || format!("note whose {} is", unit.dir().display());
    let numbers = Numbers::at(home.attachment_numbers());
    let number = numbers.take(unit.id());
    let record = Record {
        network: leases.network().to_owned(),
        container_id: attachment.container_id.clone(),
        ifname: attachment.ifname.clone(),
        number: number.map_err(|error| of_file(&attempted(), &error))?,
        rank: free_rank(&others(home, unit.id(), &attachment.container_id)),
        data_dir: Some(leases.data_dir().to_owned()),
        bridge: network.bridge().cloned(),
        device: device.map(str::to_owned),
    };
    let fresh = unit.dir().join("attachment.new");
    let text = serde_json::to_vec(&record).expect("its keys are texts");
    let written = fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, unit.dir().join(RECORD)));
    written.map_err(|error| {
        // Without a record it is not known which number goes with the unit.
        let _ = numbers.give_back(record.number, unit.id());
        of_file(&attempted(), &error)
    })?;
    Ok(record)
}

/// The other attachments of a container. A runtime does one thing at a time with it, as the specification has it. Only
/// the container's own records are read: a node has hundreds of others.
pub(crate) fn others(home: &Home, own: &str, container_id: &str) -> Vec<Record> {
    let entries = fs::read_dir(home.attachments().path()).into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let of_container = id_of(container_id, "");
    let records = ids.filter(|id| id != own && id.starts_with(&of_container));
    // The id of another container may begin so, too.
    records
        .filter_map(|id| recorded(home, &id))
        .filter(|record| record.container_id == container_id)
        .collect()
}

/// How many attachments a network has beside one's own.
///
/// # Errors
/// The book of attachments cannot be read.
pub(crate) fn attachments_of(home: &Home, network: &NetworkUnit, own: &str) -> Result<usize, Failure> {
    let units = home.attachments().units().map_err(|error| of_book(&error))?;
    let is_of = |id: &str| recorded(home, id).is_some_and(|record| record.network_unit() == *network);
    Ok(units.iter().filter(|unit| unit.id != own && is_of(&unit.id)).count())
}

fn free_rank(others: &[Record]) -> u32 {
    let is_free = |rank: &u32| others.iter().all(|other| other.rank != *rank);
    (0..).find(is_free).expect("a container has few interfaces")
}

/// Takes a unit back, with its addresses and its number. What did not become as before goes to
/// `left`, as with [`undo`].
///
/// # Errors
/// Something could not be undone or released; the unit stays, as that of a dead process, and so do its addresses.
pub(crate) fn remove(
    home: &Home,
    mut unit: Unit,
    kernel: &mut Kernel,
    left: &mut Vec<String>,
) -> Result<(), Failure> {
    give_up(&mut unit)?;
    undo(&unit, kernel, left)?;
    if let Some(record) = read(unit.dir()) {
        record.leases(home).release(&record.container_id, &record.ifname)?;
        // Before the unit goes: a number whose holder has no unit is free.
        let given_back = Numbers::at(home.attachment_numbers()).give_back(record.number, unit.id());
        given_back.map_err(|error| of_file("give back a number", &error))?;
    }
    unit.end().map_err(|error| of_book(&error))
}

/// Says that a unit is to be taken back. It may have stood, and half taken back it must not: CHECK would not miss what
/// is gone, and ADD would rest on it or refuse to make it.
///
/// # Errors
/// Nothing of it would be taken back, since a journal cannot be read, and it is as it was; or that
/// cannot be written down.
pub(crate) fn give_up(unit: &mut Unit) -> Result<(), Failure> {
    for path in unit.journals().map_err(|error| of_book(&error))? {
        Journal::open(&path).map_err(|error| refused(&error))?;
    }
    unit.give_up().map_err(|error| of_book(&error))
}

/// Undoes all journals of a unit. What another program has changed since, or a card did not take again, stays as it is,
/// and goes to `left` as a phrase, also where something else fails: it is not found again.
pub(crate) fn undo(unit: &Unit, kernel: &mut Kernel, left: &mut Vec<String>) -> Result<(), Failure> {
    for journal in unit.take_back(kernel).map_err(|error| of_book(&error))? {
        for (placed, undone) in journal.steps.map_err(|error| refused(&error))? {
            let commands = placed.commands().join("; ");
            match undone {
                Undone::Failed { why } => return Err(refused(&format!("undo {commands}: {why}"))),
                Undone::ChangedByOther { .. } => left.push(format!("{commands}: {undone}")),
                _ => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(container_id: &str, ifname: &str, rank: u32) -> Record {
        Record {
            network: "pods".to_owned(),
            container_id: container_id.to_owned(),
            ifname: ifname.to_owned(),
            number: 1,
            rank,
            data_dir: None,
            bridge: None,
            device: None,
        }
    }

    #[test]
    fn a_rank_is_the_lowest_that_is_free() {
        let of = |ranks: &[u32]| {
            let record = |rank: &u32| record("a", &format!("net{rank}"), *rank);
            free_rank(&ranks.iter().map(record).collect::<Vec<_>>())
        };
        assert_eq!([of(&[]), of(&[0, 1]), of(&[2, 0]), of(&[1])], [0, 2, 1, 0]);
    }

    #[test]
    fn a_container_whose_id_begins_alike_is_another() {
        let root = tempfile::tempdir().unwrap();
        let home = Home::at(root.path(), root.path().join("leases"));
        for of in [record("c1", "eth0", 0), record("c1", "net1", 1), record("c1.i-x", "eth0", 0)] {
            let unit = home.attachments().path().join(id_of(&of.container_id, &of.ifname));
            fs::create_dir_all(&unit).unwrap();
            fs::write(unit.join(RECORD), serde_json::to_vec(&of).unwrap()).unwrap();
        }
        let others = others(&home, &id_of("c1", "net1"), "c1");
        assert_eq!(others, [record("c1", "eth0", 0)]);
    }

    #[test]
    fn no_two_attachments_have_one_name() {
        assert_eq!((id_of("c1", "eth0"), id_of("a", "b.c")), ("c1.i-eth0".into(), "a.i-b-2ec".into()));
        assert_ne!(id_of("a", "b.c"), id_of("a.b", "c"));
        assert_ne!(id_of("a", "b-2ec"), id_of("a", "b.c"));
        // The book takes files that end so for its locks.
        assert!(!id_of("c1", "lock").ends_with(".lock"));
    }
}

//! What agents have made in the cloud for this node, in a file that outlives the machine's restart, as
//! the cloud's routes do.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{Call, CloudEndpoint, CloudError, Interface, Route, Table};
use crate::files;

/// The version of the form below.
const SCHEMA: u32 = 1;

/// What was made, as it has to be known to take it back. It has no secrets.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The version of this format: [`SCHEMA`].
    schema: u32,
    /// The virtual machine for which it was made; older versions did not note it.
    #[serde(default)]
    pub(crate) machine: Option<String>,
    /// Where the calls went.
    pub(crate) region: String,
    /// The URL of it, if it is not the region's own.
    pub(crate) endpoint: Option<String>,
    /// The virtual network that has the node's interface and its tables.
    pub(crate) vpc: String,
    /// The account that has the interface, if the cloud says so.
    pub(crate) account: Option<String>,
    /// The interfaces whose source/destination check was on, and was turned off.
    pub(crate) unchecked: Vec<String>,
    /// The routes that were made, and not those that were there before.
    pub(crate) routes: Vec<Made>,
}

/// A route that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Made {
    pub(crate) table: String,
    pub(crate) prefix: IpNet,
    /// The interface to which it leads.
    pub(crate) interface: String,
    /// The interface to which a dead route led whose place it took.
    pub(crate) before: Option<String>,
}

/// The record of a network, in its file.
#[derive(Debug)]
pub(crate) struct RecordFile {
    path: PathBuf,
    pub(crate) record: Record,
    /// What the file has.
    written: Record,
    /// Where the file goes before it is written again: it is a copy of another machine's.
    aside: Option<PathBuf>,
}

/// A record that was another machine's, and was set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// The path at which it was found, where this machine's own record is written from now on.
    file: PathBuf,
    /// The path to which the other machine's record was renamed.
    aside: PathBuf,
}

impl fmt::Display for Copied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, aside) = (self.file.display(), self.aside.display());
        write!(
            f,
            "set {file} aside as {aside}: it records what was made for the machine from whose image this one was made"
        )
    }
}

impl Record {
    pub(crate) fn is_empty(&self) -> bool {
        self.unchecked.is_empty() && self.routes.is_empty()
    }

    pub(crate) fn made(&self, table: &str, prefix: IpNet) -> Option<&Made> {
        self.routes.iter().find(|made| made.table == table && made.prefix == prefix)
    }

    /// Whether the object of a call has been changed for this node.
    pub(crate) fn has(&self, call: &Call) -> bool {
        match call {
            Call::Create { table, prefix, .. }
            | Call::Replace { table, prefix, .. }
            | Call::Delete { table, prefix } => self.made(table, *prefix).is_some(),
            Call::CheckSource { interface, .. } => self.unchecked.contains(interface),
        }
    }

    /// Notes what a call is about to make. `before` is the interface to which a dead route leads whose place it takes;
    /// what was there before the first call is kept.
    pub(crate) fn add(&mut self, call: &Call, before: Option<&String>) {
        match call {
            Call::Create { table, prefix, interface } | Call::Replace { table, prefix, interface } => {
                let first = self.made(table, *prefix).map(|known| known.before.clone());
                let before = first.unwrap_or_else(|| before.cloned());
                self.remove(table, *prefix);
                let (table, prefix, interface) = (table.clone(), *prefix, interface.clone());
                self.routes.push(Made { table, prefix, interface, before });
            }
            Call::CheckSource { interface, on: false } if !self.unchecked.contains(interface) => {
                self.unchecked.push(interface.clone());
            }
            Call::CheckSource { .. } | Call::Delete { .. } => {}
        }
    }

    pub(crate) fn remove(&mut self, table: &str, prefix: IpNet) {
        self.routes.retain(|made| !(made.table == table && made.prefix == prefix));
    }

    /// Where to take it back.
    pub(crate) fn place(&self) -> CloudEndpoint {
        CloudEndpoint { region: self.region.clone(), endpoint: self.endpoint.clone() }
    }

    /// That in words, with whose it is.
    pub(crate) fn whereabouts(&self) -> String {
        let account =
            self.account.as_ref().map_or_else(String::new, |account| format!(" of account {account}"));
        format!("{}{account} in {}", self.vpc, self.region)
    }
}

impl Made {
    /// The call that takes it back, from what its table says; `None`: it leads elsewhere by now.
    ///
    /// One that is absent is deleted all the same: right after a change the cloud may still answer
    /// with what was before.
    pub(crate) fn taken_back_by(&self, found: &Table) -> Option<Call> {
        let Made { table, prefix, interface, before } = self.clone();
        let is_known = |route: &Route| route.target == interface || Some(&route.target) == before.as_ref();
        if !found.static_route(prefix).is_none_or(is_known) {
            return None;
        }
        Some(match before {
            Some(interface) => Call::Replace { table, prefix, interface },
            None => Call::Delete { table, prefix },
        })
    }
}

impl RecordFile {
    /// The file of a network in a directory.
    pub(crate) fn path(directory: &Path, network: &str) -> PathBuf {
        directory.join(format!("{network}.cloud.json"))
    }

    /// Reads it; where there is none, nothing was made.
    pub(crate) fn open(directory: &Path, network: &str) -> Result<RecordFile, CloudError> {
        let path = RecordFile::path(directory, network);
        let failed = |why: String| CloudError::Unreadable { path: path.display().to_string(), why };
        let record = match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str::<Record>(&text).map_err(|error| failed(error.to_string()))?,
            Err(error) if error.kind() == ErrorKind::NotFound => Record::default(),
            Err(error) => return Err(failed(error.to_string())),
        };
        if record.schema > SCHEMA {
            return Err(failed("it is of a newer version of this program".to_owned()));
        }
        Ok(RecordFile { path, written: record.clone(), record, aside: None })
    }

    /// Takes it for empty if it was made for another virtual machine than this one: a machine that was made from an
    /// image of that one has a copy of its file, and that one still needs what is recorded. Only
    /// [`RecordFile::set_aside`] touches the file, and has to come before the next change.
    pub(crate) fn belong_to(&mut self, machine: &str) {
        let Some(theirs) = self.record.machine.as_ref().filter(|theirs| *theirs != machine) else { return };
        self.aside = Some(self.path.with_extension(format!("of-{theirs}.json")));
        self.record = Record::default();
    }

    /// Sets a copy of another machine's file aside; `None`: it is none.
    pub(crate) fn set_aside(&mut self) -> Result<Option<Copied>, CloudError> {
        let Some(aside) = self.aside.take() else { return Ok(None) };
        fs::rename(&self.path, &aside).map_err(|error| self.unwritten(&error))?;
        self.written = Record::default();
        Ok(Some(Copied { file: self.path.clone(), aside }))
    }

    fn unwritten(&self, error: &std::io::Error) -> CloudError {
        CloudError::Record { path: self.path.display().to_string(), why: error.to_string() }
    }

    /// Notes where calls go, and whose the node's interface is there.
    ///
    /// # Errors
    /// What is recorded was made elsewhere, and would be forgotten.
    pub(crate) fn at(&mut self, place: &CloudEndpoint, interface: &Interface) -> Result<(), CloudError> {
        self.belong_to(&interface.instance);
        let here = Record {
            machine: Some(interface.instance.clone()),
            region: place.region.clone(),
            endpoint: place.endpoint.clone(),
            vpc: interface.vpc.clone(),
            account: interface.account.clone(),
            ..self.record.clone()
        };
        let is_same = (&here.region, &here.vpc) == (&self.record.region, &self.record.vpc);
        if !is_same && !self.record.is_empty() {
            return Err(CloudError::Elsewhere {
                path: self.path.display().to_string(),
                recorded: self.record.whereabouts(),
                now: here.whereabouts(),
            });
        }
        self.record = here;
        Ok(())
    }

    /// Why something that is recorded is not taken to be gone: the login sees nothing of its network.
    pub(crate) fn unseen(&self, what: String) -> CloudError {
        CloudError::Unseen {
            what,
            recorded: self.record.whereabouts(),
            path: self.path.display().to_string(),
        }
    }

    /// Changes it, first in the file.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Record)) -> Result<(), CloudError> {
        let mut record = Record { schema: SCHEMA, ..self.record.clone() };
        change(&mut record);
        if record == self.written {
            self.record = record;
            return Ok(());
        }
        let written = if record.is_empty() {
            fs::remove_file(&self.path).or_else(|error| match error.kind() {
                ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            })
        } else {
            let text = serde_json::to_string_pretty(&record).expect("its keys are texts");
            files::replace(&self.path, &(text + "\n")).map(drop)
        };
        written.map_err(|error| self.unwritten(&error))?;
        self.written.clone_from(&record);
        self.record = record;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::difference::tests::{interface as interface_of_a, leads, prefix, table};
    use super::*;

    fn made(before: Option<&str>) -> Made {
        let before = before.map(str::to_owned);
        Made { table: "rtb-1".to_owned(), prefix: prefix(), interface: "eni-a".to_owned(), before }
    }

    #[test]
    fn a_route_is_taken_back_unless_it_leads_elsewhere() {
        let delete = Some(Call::Delete { table: "rtb-1".to_owned(), prefix: prefix() });
        let lead_back = Some(Call::Replace {
            table: "rtb-1".to_owned(),
            prefix: prefix(),
            interface: "eni-c".to_owned(),
        });
        let by = |made: Made, to: &[&str]| {
            made.taken_back_by(&table("rtb-1", to.iter().map(|to| leads(to)).collect()))
        };
        assert_eq!(by(made(None), &["eni-a"]), delete);
        assert_eq!(by(made(None), &[]), delete, "the cloud may not list it yet");
        assert_eq!(by(made(None), &["eni-b"]), None);
        assert_eq!(by(made(Some("eni-c")), &["eni-a"]), lead_back);
        assert_eq!(by(made(Some("eni-c")), &["eni-c"]), lead_back, "this may be what was before");
        assert_eq!(by(made(Some("eni-c")), &["eni-b"]), None);
        let propagated = Route { is_static: false, ..leads("vgw-1") };
        assert_eq!(made(None).taken_back_by(&table("rtb-1", vec![propagated])), delete);
    }

    #[test]
    fn what_was_before_the_first_call_is_kept() {
        let mut record = Record::default();
        let call = |interface: &str| Call::Replace {
            table: "rtb-1".to_owned(),
            prefix: prefix(),
            interface: interface.to_owned(),
        };
        record.add(&call("eni-a"), Some(&"eni-c".to_owned()));
        record.add(&call("eni-b"), Some(&"eni-a".to_owned()));
        let [made] = &record.routes[..] else { panic!("{record:?}") };
        assert_eq!((made.interface.as_str(), made.before.as_deref()), ("eni-b", Some("eni-c")));
    }

    #[test]
    fn what_was_made_elsewhere_is_not_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = RecordFile::open(directory.path(), "pods").unwrap();
        let interface = |vpc: &str| Interface { vpc: vpc.to_owned(), ..interface_of_a() };
        let place = |region: &str| CloudEndpoint { region: region.to_owned(), endpoint: None };
        file.at(&place("eu-1"), &interface("vpc-1")).unwrap();
        file.at(&place("eu-2"), &interface("vpc-1")).unwrap();
        let call =
            Call::Create { table: "rtb-1".to_owned(), prefix: prefix(), interface: "eni-a".to_owned() };
        file.change(|record| record.add(&call, None)).unwrap();
        file.at(&place("eu-2"), &interface("vpc-1")).unwrap();
        for (region, vpc) in [("eu-1", "vpc-1"), ("eu-2", "vpc-2")] {
            let why = file.at(&place(region), &interface(vpc)).unwrap_err().to_string();
            assert!(why.contains("vpc-1 of account 111122223333 in eu-2"), "{why}");
        }
        let again = RecordFile::open(directory.path(), "pods").unwrap();
        assert_eq!((again.record.region.as_str(), again.record.routes.len()), ("eu-2", 1));
    }

    #[test]
    fn what_was_made_for_another_machine_is_left_to_it() {
        let directory = tempfile::tempdir().unwrap();
        let open = || RecordFile::open(directory.path(), "pods").unwrap();
        let place = CloudEndpoint { region: "eu-1".to_owned(), endpoint: None };
        let call =
            Call::Create { table: "rtb-1".to_owned(), prefix: prefix(), interface: "eni-a".to_owned() };
        let mut original = open();
        original.at(&place, &interface_of_a()).unwrap();
        original.change(|record| record.add(&call, None)).unwrap();
        let text = fs::read_to_string(&original.path).unwrap();

        // The copy may be in another network, even.
        let copy_of = Interface { instance: "i-b".to_owned(), vpc: "vpc-2".to_owned(), ..interface_of_a() };
        let mut copy = open();
        copy.at(&place, &copy_of).unwrap();
        assert!(copy.record.is_empty());
        assert_eq!(open().record.routes.len(), 1, "it was only looked at");
        let copied = copy.set_aside().unwrap().unwrap();
        assert_eq!(copy.set_aside().unwrap(), None);
        assert_eq!(fs::read_to_string(copied.aside).unwrap(), text);
        assert!(!copied.file.exists());
    }

    #[test]
    fn a_damaged_record_is_not_taken_for_an_empty_one() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(RecordFile::path(directory.path(), "pods"), "{").unwrap();
        let error = RecordFile::open(directory.path(), "pods").unwrap_err();
        assert!(error.to_string().starts_with("read the record of what was made in the cloud"), "{error}");
        assert!(error.remedy().is_some());
    }
}

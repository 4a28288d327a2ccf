//! A register: a value of the kernel that can be read, written and compared.
//!
//! Each setting is a type with this trait, in a file of its own. How a register is set, looked at and put back is
//! written once, in `steps::setting`.

use std::fmt::Debug;

use linux::netlink::LinkInfo;
use linux::{IfName, Mac};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Place;
use crate::error::StepError;
use crate::kernel::OpenNetns;
use crate::lack::Lack;
use crate::lifetime::Lifetime;
use crate::listing::Listing;

/// What can stand in a journal.
pub(crate) trait Stored: Clone + Debug + Eq + Serialize + DeserializeOwned {}

impl<T: Clone + Debug + Eq + Serialize + DeserializeOwned> Stored for T {}

/// A value of the kernel, and what a step asks of it. Most registers need the functions without a body and no other.
pub(crate) trait Register: Stored {
    /// The type of what it holds.
    type Value: Stored;
    /// What else the kernel may change when it is written; `()` for nothing.
    type Along: Along<Self>;

    /// What it holds now; `None`: there is no such register.
    fn read(&self, at: &At<'_>) -> Result<Option<Self::Value>, StepError>;

    fn write(&self, at: &At<'_>, value: &Self::Value) -> Result<(), StepError>;

    /// What the step asks for, where it finds this value.
    fn wanted(&self, was: &Self::Value) -> Self::Value;

    /// What it is, as a phrase: "the MTU of link eth0". No two registers of one type and link have the same.
    fn subject(&self) -> String;

    /// A value, as a person would type it to set it.
    fn words(&self, value: &Self::Value) -> String;

    /// As a phrase, with what distinguishes it from another value of the same words.
    fn phrase(&self, value: &Self::Value) -> String {
        self.words(value)
    }

    /// What a person would type in the step's place.
    fn command(&self, place: &Place) -> String;

    /// Why it cannot be set, or could not be put back.
    fn refusal(&self, _at: &At<'_>, _was: &Self::Value) -> Result<Option<String>, StepError> {
        Ok(None)
    }

    /// Does what the step asks for. A value that is so already is not written: a container's `/proc/sys` may be
    /// read-only, some drivers stop and start a link even if nothing changes, and older kernels refuse to be asked
    /// again.
    fn set(&self, at: &At<'_>, was: &Self::Value) -> Result<(), StepError> {
        if self.is_met(was) { Ok(()) } else { self.write(at, &self.wanted(was)) }
    }

    /// Whether a value is what the step asks for.
    fn is_met(&self, found: &Self::Value) -> bool {
        self.is_same(found, &self.wanted(found))
    }

    /// Whether two values are one, though they are written differently.
    fn is_same(&self, one: &Self::Value, other: &Self::Value) -> bool {
        one == other
    }

    /// Whether what undo finds is the step's own doing. Where nothing was read back after the step, whatever meets it
    /// is taken for that.
    fn is_ours(&self, values: &Times<'_, Self::Value>) -> bool {
        match values.left {
            Some(left) => self.is_same(values.found, left),
            None => self.is_met(values.found),
        }
    }

    /// Whether others can come to use what the step makes, so that undo would take it from them.
    fn makes_what_is_used(&self) -> bool {
        false
    }

    /// What uses the object that the step has made, as a phrase. Undo leaves what is in use, and also what may be.
    fn used(&self, _at: &At<'_>) -> Result<Option<String>, StepError> {
        Ok(None)
    }

    /// What else has the object of the register by now, as a phrase. A value that could be the step's own
    /// then belongs to that.
    fn taken(&self, _at: &At<'_>) -> Result<Option<String>, StepError> {
        Ok(None)
    }

    /// Whether a value can be one of this register, and not of another of the same type: a journal may hold anything.
    fn admits(&self, _value: &Self::Value) -> bool {
        true
    }

    /// What ends a value, beside undo.
    fn lifetime(&self) -> Lifetime<'_> {
        Lifetime::Netns
    }

    /// Whether the list of a namespace's links shows it.
    fn is_listed(&self) -> bool {
        false
    }

    /// As [`crate::Step::lack`].
    fn lack(&self) -> Option<Lack> {
        None
    }

    /// What to say when it holds another value now.
    fn changed(&self, found: &str) -> String {
        format!("{} is now {found}", self.subject())
    }

    /// Why nothing can be set: there is no such register.
    fn missing(&self) -> StepError {
        StepError::Refused { why: format!("{} is not there", self.subject()) }
    }
}

/// What the kernel changes together with a register.
pub(crate) trait Along<R: Register>: Stored + Default {
    /// Whether it goes back also where another program has changed the register since.
    const GOES_ALONE: bool = false;

    /// All that a write may change.
    fn read(register: &R, at: &At<'_>) -> Result<Self, StepError>;

    /// What of it a write has changed.
    fn changed_since(self, were: &Self) -> Self;

    /// Brings it back, after the register itself. True if anything had to be written.
    fn put_back(undoing: &Undoing<'_, R>, along: &Times<'_, Self>) -> Result<bool, StepError>;
}

impl<R: Register> Along<R> for () {
    fn read(_: &R, _: &At<'_>) -> Result<(), StepError> {
        Ok(())
    }

    fn changed_since(self, (): &()) {}

    fn put_back(_: &Undoing<'_, R>, _: &Times<'_, ()>) -> Result<bool, StepError> {
        Ok(false)
    }
}

/// A register that is being put back.
pub(crate) struct Undoing<'a, R: Register> {
    pub(crate) register: &'a R,
    pub(crate) at: &'a At<'a>,
    pub(crate) values: Times<'a, R::Value>,
    /// Whether it held already what was there before the step.
    pub(crate) is_back: bool,
    /// The index that a link of the namespace has now, by the one it had.
    pub(crate) index_now: &'a dyn Fn(u32) -> u32,
}

/// The same thing at three times.
#[derive(Debug)]
pub(crate) struct Times<'a, T> {
    /// As it was before the step.
    pub(crate) was: &'a T,
    /// As the step left it; `None`: nothing was read back.
    pub(crate) left: Option<&'a T>,
    /// As undo finds it.
    pub(crate) found: &'a T,
}

/// Where a register is.
pub(crate) struct At<'a> {
    pub(crate) opened: &'a OpenNetns,
    pub(crate) listing: &'a Listing,
    link: Option<LinkInfo>,
}

/// What a register held, as a journal keeps it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub(crate) struct Held<R: Register> {
    /// The index of its link; before the step alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) index: Option<u32>,
    /// The Ethernet address that the link had, by which a link of another name is known again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mac: Option<Mac>,
    pub(crate) value: R::Value,
    /// After the step, what has changed of it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) along: R::Along,
}

/// The address says whose the register was, and not what it held: that of a bridge changes with its ports.
impl<R: Register> PartialEq for Held<R> {
    fn eq(&self, other: &Held<R>) -> bool {
        let Held { index, mac: _, value, along } = self;
        *index == other.index && *value == other.value && *along == other.along
    }
}

impl<R: Register> Eq for Held<R> {}

impl<R: Register> Held<R> {
    /// Whether a link that has the index may be the one of which this was read. One that was moved in from another
    /// namespace keeps the index that it had there, and has another name and another address.
    pub(crate) fn is_of(&self, found: &LinkInfo, name: Option<&IfName>) -> bool {
        self.mac.is_none_or(|mac| found.mac == Some(mac)) || name == Some(&found.name)
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl<'a> At<'a> {
    pub(crate) fn new(opened: &'a OpenNetns, listing: &'a Listing, link: Option<LinkInfo>) -> At<'a> {
        At { opened, listing, link }
    }

    /// The link of a register that has one.
    pub(crate) fn link(&self) -> &LinkInfo {
        self.link.as_ref().expect("it is made with the link that the register names")
    }

    /// Its index, where there is one.
    pub(crate) fn index(&self) -> Option<u32> {
        self.link.as_ref().map(|link| link.index)
    }

    /// The Ethernet address of the link, where there is one.
    pub(crate) fn mac(&self) -> Option<Mac> {
        self.link.as_ref().and_then(|link| link.mac)
    }

    /// Its name, as it is now.
    pub(crate) fn name(&self) -> &IfName {
        &self.link().name
    }
}

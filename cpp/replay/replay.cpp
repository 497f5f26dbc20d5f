// SPDX-License-Identifier: MIT
// The replay of a recorded step: a list of operators, called one after the other through torch's dispatcher as boxed
// calls, without Python's lock. torch's stable ABI passes no Scalar to an operator, so this is a library of its own
// against c10, with the version of torch that it is built for in its name: Python opens it under no other.
#include <ATen/ScalarOps.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace py = pybind11;
using c10::IValue;

namespace dnnsuite::replay {

namespace {

using Slot = std::int64_t;  // the recording's number of a tensor, or of a number that changes
using Values = std::vector<IValue>;

enum class From : std::uint8_t { kConstant, kKept, kRegister, kLast, kList };

/// Where an argument comes from. `kLast` is a register that nothing reads afterwards.
struct Argument {
    From from = From::kConstant;
    std::size_t place = 0;
    IValue constant{};
    c10::TypePtr type{};  // as the operator's schema declares it; of a list: of its elements
    std::vector<Argument> parts{};
};

constexpr std::size_t kDropped = static_cast<std::size_t>(-1);

/// Registers of one result, one for each tensor of a list; `kDropped` for what nobody reads.
struct Result {
    bool is_list = false;
    std::vector<std::size_t> places{};
};

struct Call {
    c10::OperatorHandle op;
    std::string name;
    std::vector<Argument> arguments;
    std::vector<Result> results;
};

/// A number in the form in which an operator takes it. A tensor of one knows that it was a number: its dtype counts less.
IValue as_declared(const IValue& value, const c10::TypePtr& declared) {
    if (value.isTensor()) return value;
    const c10::TypePtr type = declared->kind() == c10::TypeKind::OptionalType
                                  ? declared->castRaw<c10::OptionalType>()->getElementType()
                                  : declared;
    if (type->kind() == c10::TypeKind::FloatType && value.isInt()) return static_cast<double>(value.toInt());
    if (type->kind() != c10::TypeKind::TensorType) return value;
    at::Tensor tensor = c10::scalar_to_tensor(value.toScalar());
    tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
    return tensor;
}

/// The operators, in terms of registers: the first are the inputs. Holds no tensor of any step but constants.
class Program {
  public:
    Program(const std::vector<Slot>& inputs, const std::vector<Slot>& kept, const py::list& calls,
            const std::vector<Slot>& results, const py::type& slot_type)
        : inputs_(inputs.size()), registers_(inputs.size()), kept_(kept.size()), slot_type_(slot_type) {
        for (std::size_t place = 0; place < inputs.size(); ++place) known_.try_emplace(inputs[place], false, place);
        for (std::size_t place = 0; place < kept.size(); ++place)
            known_.insert_or_assign(kept[place], std::pair(true, place));
        const torch::jit::ToIValueAllowNumbersAsTensors numbers(true);
        for (const py::handle call : calls) add(call.cast<py::tuple>());
        for (const Slot slot : results) results_.push_back(argument_of(slot, c10::TensorType::get()));
        find_last_uses();
        known_.clear();
        slot_type_ = py::none();
    }

    std::size_t inputs() const { return inputs_; }
    std::size_t kept() const { return kept_; }
    bool takes(std::size_t input) const { return used_[input]; }

    /// Runs all operators; `at` is the one under way. Called without Python's lock, by several threads at a time.
    Values run(Values&& inputs, const Values& kept, std::size_t& at) const {
        Values registers = std::move(inputs);
        registers.resize(registers_);
        torch::jit::Stack stack;
        for (at = 0; at < calls_.size(); ++at) {
            const Call& call = calls_[at];
            stack.clear();
            for (const Argument& argument : call.arguments) stack.push_back(value_of(argument, registers, kept));
            call.op.callBoxed(stack);
            for (std::size_t place = 0; place < call.results.size(); ++place)
                keep(call.results[place], std::move(stack[place]), registers);
        }
        Values results;
        for (const Argument& argument : results_) results.push_back(value_of(argument, registers, kept));
        return results;
    }

    const std::string& name_of(std::size_t call) const { return calls_[call].name; }
    std::size_t size() const { return calls_.size(); }

  private:
    void add(const py::tuple& call) {
        const auto name = call[0].cast<std::string>(), overload = call[1].cast<std::string>();
        const auto found = c10::Dispatcher::singleton().findSchema({name, overload});
        if (!found) throw py::value_error("torch has no operator " + name + (overload.empty() ? "" : "." + overload));
        const auto& declared = found->schema().arguments();
        const auto given = call[2].cast<py::tuple>();
        if (given.size() != declared.size())
            throw py::value_error(name + " takes " + std::to_string(declared.size()) + " arguments, not " +
                                  std::to_string(given.size()));
        Call made{*found, name, {}, {}};
        made.name.replace(made.name.find("::"), 2, ".");
        for (std::size_t place = 0; place < given.size(); ++place)
            made.arguments.push_back(argument(given[place], declared[place].real_type()));
        if (!found->schema().returns().empty())
            for (const py::handle output : call[3].cast<py::list>()) made.results.push_back(result(output));
        if (made.results.size() > found->schema().returns().size())
            throw py::value_error(name + " returns " + std::to_string(found->schema().returns().size()) +
                                  " results, not " + std::to_string(made.results.size()));
        calls_.push_back(std::move(made));
    }

    Argument argument(const py::handle& value, const c10::TypePtr& type) const {
        if (py::type::handle_of(value).is(slot_type_)) return argument_of(value.attr("index").cast<Slot>(), type);
        if ((py::isinstance<py::list>(value) || py::isinstance<py::tuple>(value)) && has_slots(value)) {
            Argument made{From::kList, 0, {}, element_of(type), {}};
            for (const py::handle part : value) made.parts.push_back(argument(part, made.type));
            return made;
        }
        return {From::kConstant, 0, torch::jit::toIValue(value, type), type, {}};
    }

    Argument argument_of(Slot slot, const c10::TypePtr& type) const {
        const auto found = known_.find(slot);
        if (found == known_.end()) throw py::value_error("nothing has made slot " + std::to_string(slot));
        return {found->second.first ? From::kKept : From::kRegister, found->second.second, {}, type, {}};
    }

    bool has_slots(const py::handle& values) const {
        for (const py::handle value : values)
            if (py::type::handle_of(value).is(slot_type_)) return true;
        return false;
    }

    static c10::TypePtr element_of(const c10::TypePtr& type) {
        if (type->kind() == c10::TypeKind::OptionalType)
            return element_of(type->castRaw<c10::OptionalType>()->getElementType());
        if (type->kind() == c10::TypeKind::ListType) return type->castRaw<c10::ListType>()->getElementType();
        throw py::value_error("a list of tensors stands for " + type->str());
    }

    Result result(const py::handle& output) {
        if (!py::isinstance<py::list>(output)) return {false, {place_of(output)}};
        Result made{true, {}};
        for (const py::handle part : output) made.places.push_back(place_of(part));
        return made;
    }

    /// The new register of a result. One that is no tensor gets none, nor does a tensor that is written in place.
    std::size_t place_of(const py::handle& output) {
        if (output.is_none() || !known_.try_emplace(output.cast<Slot>(), false, registers_).second) return kDropped;
        return registers_++;
    }

    void find_last_uses() {
        std::vector<bool> read(registers_);
        for (const Argument& result : results_)
            if (result.from == From::kRegister) read[result.place] = true;
        for (auto call = calls_.rbegin(); call != calls_.rend(); ++call) {
            for (Result& result : call->results)
                for (std::size_t& place : result.places)
                    if (place != kDropped && !read[place]) place = kDropped;
            for (auto one = call->arguments.rbegin(); one != call->arguments.rend(); ++one) note_use(*one, read);
        }
        used_.assign(read.begin(), read.begin() + static_cast<std::ptrdiff_t>(inputs_));
    }

    static void note_use(Argument& argument, std::vector<bool>& read) {
        for (auto part = argument.parts.rbegin(); part != argument.parts.rend(); ++part) note_use(*part, read);
        if (argument.from != From::kRegister || read[argument.place]) return;
        read[argument.place] = true;
        argument.from = From::kLast;
    }

    static IValue value_of(const Argument& argument, Values& registers, const Values& kept) {
        switch (argument.from) {
            case From::kConstant: return argument.constant;
            case From::kKept: return kept[argument.place];
            case From::kRegister: return as_declared(registers[argument.place], argument.type);
            case From::kLast: return as_declared(std::exchange(registers[argument.place], IValue()), argument.type);
            case From::kList: break;
        }
        c10::impl::GenericList made(argument.type);
        made.reserve(argument.parts.size());
        for (const Argument& part : argument.parts) made.push_back(value_of(part, registers, kept));
        return made;
    }

    static void keep(const Result& result, IValue&& value, Values& registers) {
        if (!result.is_list) {
            if (result.places.front() != kDropped) registers[result.places.front()] = std::move(value);
            return;
        }
        const auto parts = std::move(value).toTensorVector();
        for (std::size_t place = 0; place < result.places.size(); ++place)
            if (result.places[place] != kDropped) registers[result.places[place]] = parts.at(place);
    }

    std::size_t inputs_, registers_, kept_;
    std::vector<Call> calls_{};
    std::vector<Argument> results_{};
    std::vector<bool> used_{};
    std::unordered_map<Slot, std::pair<bool, std::size_t>> known_{};  // while it is made: is it kept, and where
    py::object slot_type_;
};

/// A program with the tensors that stay from step to step.
class Replay {
  public:
    Replay(std::shared_ptr<const Program> program, const py::sequence& kept) : program_(std::move(program)) {
        if (kept.size() != program_->kept())
            throw py::value_error("the step keeps " + std::to_string(program_->kept()) + " tensors, not " +
                                  std::to_string(kept.size()));
        for (const py::handle one : kept) {
            if (!THPVariable_Check(one.ptr()))
                throw py::type_error("not a tensor: " + py::str(one).cast<std::string>());
            kept_.emplace_back(THPVariable_Unpack(one.ptr()));
        }
    }

    py::list run(const py::sequence& given) const {
        if (given.size() < program_->inputs())
            throw py::value_error("the step takes " + std::to_string(program_->inputs()) + " inputs, not " +
                                  std::to_string(given.size()));
        Values inputs(program_->inputs());
        for (std::size_t place = 0; place < inputs.size(); ++place) {
            if (!program_->takes(place)) continue;
            const py::object one = given[place];
            inputs[place] = THPVariable_Check(one.ptr()) ? IValue(THPVariable_Unpack(one.ptr()))
                                                         : torch::jit::toIValue(one, c10::NumberType::get());
        }
        py::list results;
        for (const IValue& result : without_lock(std::move(inputs)))
            results.append(py::reinterpret_steal<py::object>(THPVariable_Wrap(result.toTensor())));
        return results;
    }

  private:
    /// Runs the program below autograd and autocast, of which the recording has the operators already.
    Values without_lock(Values&& inputs) const {
        std::size_t at = 0;
        std::exception_ptr error;
        Values results;
        try {
            torch::PyWarningHandler warnings;  // Python's warnings, as from a call of torch's; they may be errors there
            const py::gil_scoped_release unlocked;
            const at::AutoDispatchBelowAutograd no_autograd;
            const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
            try {
                results = program_->run(std::move(inputs), kept_, at);
            } catch (...) {
                warnings.set_in_exception();
                error = std::current_exception();
            }
        } catch (python_error& raised) {
            raised.restore();
            throw py::error_already_set();
        }
        if (error) fail(error, at < program_->size() ? program_->name_of(at) : "the results");
        return results;
    }

    /// Raises a RuntimeError that names the operator. What does not end with a step, as Ctrl-C, is left as it is.
    [[noreturn]] static void fail(const std::exception_ptr& error, const std::string& name) {
        const std::string where = name + " in a captured step: ";
        try {
            std::rethrow_exception(error);
        } catch (python_error& raised) {
            raised.restore();
            from_python(where);
        } catch (py::error_already_set& raised) {
            raised.restore();
            from_python(where);
        } catch (const c10::Error& raised) {
            py::set_error(PyExc_RuntimeError, (where + raised.what_without_backtrace()).c_str());
        } catch (const std::exception& raised) {
            py::set_error(PyExc_RuntimeError, (where + raised.what()).c_str());
        }
        throw py::error_already_set();
    }

    static void from_python(const std::string& where) {
        if (PyErr_ExceptionMatches(PyExc_Exception) == 0) return;
        py::error_already_set raised;
        const std::string said = where + py::str(raised.type().attr("__name__")).cast<std::string>() + ": " +
                                 py::str(raised.value()).cast<std::string>();
        py::raise_from(raised, PyExc_RuntimeError, said.c_str());
    }

    std::shared_ptr<const Program> program_;
    Values kept_{};
};

}  // namespace

PYBIND11_MODULE(_replay, m) {
    using py::literals::operator""_a;
    m.doc() =
        "Replay of recorded steps: boxed calls of torch's operators. For the torch it was built with, and no other.";
    py::class_<Replay>(m, "Replay", "A program, and the tensors that stay from step to step.")
        .def("__call__", &Replay::run, "inputs"_a,
             "Run all operators and return the results. Other threads run meanwhile.\n\n"
             "Raises RuntimeError, which names the operator that failed; what it had written stays written.");
    py::class_<Program, std::shared_ptr<Program>>(m, "Program",
                                                  "Operators of a step; it holds no tensors but constants.")
        .def(py::init<const std::vector<Slot>&, const std::vector<Slot>&, const py::list&, const std::vector<Slot>&,
                      const py::type&>(),
             "inputs"_a, "kept"_a, "calls"_a, "results"_a, "slot_type"_a,
             "Each call is (name, overload, arguments, outputs). An argument of `slot_type` has the slot as its\n"
             "`index`; an output is a slot, a list of slots, or None.\n\n"
             "Raises ValueError for an operator that torch does not have, and for wrong numbers of arguments.")
        .def(
            "on", [](std::shared_ptr<const Program> self, const py::sequence& kept) { return Replay(self, kept); },
            "kept"_a, "Make the replay on the tensors that stay, in the order of the slots `kept`.");
}

}  // namespace dnnsuite::replay

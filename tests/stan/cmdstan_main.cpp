// A command line over one Stan model, for the tests: the part of CmdStan's that az_cv and CmdStanPy use.
//
// Sampler, writers and parsers are Stan's own; this file reads the arguments and opens the files. It
// is included after bridgestan_interface.cpp.
#include <stan/callbacks/stream_logger.hpp>
#include <stan/callbacks/unique_stream_writer.hpp>
#include <stan/services/sample/fixed_param.hpp>
#include <stan/services/sample/hmc_nuts_diag_e.hpp>
#include <stan/services/sample/hmc_nuts_diag_e_adapt.hpp>
#include <stan/services/util/create_unit_e_diag_inv_metric.hpp>

#include <fstream>
#include <iomanip>
#include <iostream>
#include <map>

namespace {

using Arguments = std::map<std::string, std::string>;
using Writer = stan::callbacks::unique_stream_writer<std::ofstream>;

Arguments read_arguments(int count, const char** words) {
  Arguments found = {{"method", "sample"}, {"id", "1"}, {"seed", "1"}, {"init", "2"},
                     {"output file", "output.csv"}, {"sig_figs", "8"}, {"num_samples", "1000"},
                     {"num_warmup", "1000"}, {"num_chains", "1"}, {"engaged", "1"}, {"thin", "1"},
                     {"save_warmup", "0"}, {"stepsize", "1"}, {"max_depth", "10"},
                     {"delta", "0.8"}, {"algorithm", "hmc"}};
  std::string section;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const auto sign = word.find('=');
    if (sign == std::string::npos) {
      section = word;
      if (word == "sample" || word == "log_prob" || word == "info") found["method"] = word;
      continue;
    }
    const auto key = word.substr(0, sign);
    found[key == "file" ? section + " file" : key] = word.substr(sign + 1);
  }
  return found;
}

// `draws.csv` of the second of several chains is `draws_2.csv`.
std::string numbered(const std::string& name, int chain, int chains) {
  if (chains == 1 || name.empty()) return name;
  const auto dot = name.rfind('.');
  return name.substr(0, dot) + "_" + std::to_string(chain + 1) + name.substr(dot);
}

std::unique_ptr<stan::io::var_context> read_json(const std::string& name) {
  if (name.empty()) return std::make_unique<stan::io::empty_var_context>();
  std::ifstream stream(name);
  if (!stream) throw std::invalid_argument("Can't open specified file, \"" + name + "\"");
  return std::make_unique<stan::json::json_data>(stream);
}

std::unique_ptr<std::ofstream> open(const std::string& name, const Arguments& arguments,
                                    const std::string& model) {
  auto stream = std::make_unique<std::ofstream>(name);
  *stream << std::setprecision(std::stoi(arguments.at("sig_figs")));
  const auto given = [&](const char* key) {
    return arguments.count(key) ? arguments.at(key) : std::string();
  };
  const bool fixed = given("algorithm") == "fixed_param";
  *stream << "# stan_version_major = " << STAN_MAJOR << "\n# stan_version_minor = " << STAN_MINOR
          << "\n# stan_version_patch = 0\n# model = " << model
          << "\n# method = sample (Default)\n#   sample\n#     num_samples = "
          << given("num_samples") << "\n#     num_warmup = " << given("num_warmup")
          << "\n#     save_warmup = " << (given("save_warmup") == "0" ? "false" : "true")
          << "\n#     thin = " << given("thin") << "\n#     adapt\n#       engaged = "
          << (given("engaged") == "0" ? "false" : "true") << "\n#     algorithm = "
          << given("algorithm") << "\n";
  if (!fixed)
    *stream << "#       hmc\n#         engine = nuts (Default)\n#           nuts\n#             "
            << "max_depth = " << given("max_depth") << "\n#         metric = diag_e (Default)\n"
            << "#         stepsize = " << given("stepsize") << "\n";
  *stream << "#     num_chains = " << given("num_chains") << "\n# id = " << given("id")
          << "\n# data\n#   file = " << given("data file") << "\n# init = " << given("init")
          << "\n# random\n#   seed = " << given("seed") << "\n# output\n#   file = "
          << given("output file") << "\n#   diagnostic_file = " << given("diagnostic_file")
          << "\n#   sig_figs = " << given("sig_figs") << "\n";
  return stream;
}

int sample(stan::model::model_base& model, const Arguments& given) {
  stan::callbacks::stream_logger logger(std::cout, std::cout, std::cout, std::cerr, std::cerr);
  stan::callbacks::interrupt interrupt;
  stan::callbacks::writer nothing;
  stan::callbacks::structured_writer no_metric;
  const auto number = [&](const char* key) { return std::stod(given.at(key)); };
  const int chains = number("num_chains");
  const auto diagnostic = given.count("diagnostic_file") ? given.at("diagnostic_file") : "";
  for (int chain = 0; chain < chains; ++chain) {
    std::unique_ptr<stan::io::var_context> start = std::make_unique<stan::io::empty_var_context>();
    double radius = 2;
    if (given.at("init").find(".json") != std::string::npos)
      start = read_json(numbered(given.at("init"), chain, chains));
    else
      radius = number("init");
    Writer draws(open(numbered(given.at("output file"), chain, chains), given, model.model_name()),
                 "# ");
    std::unique_ptr<stan::callbacks::writer> points = std::make_unique<stan::callbacks::writer>();
    if (!diagnostic.empty())
      points = std::make_unique<Writer>(
          open(numbered(diagnostic, chain, chains), given, model.model_name()), "# ");
    const unsigned int seed = number("seed"), id = number("id") + chain;
    int status;
    if (given.at("algorithm") == "fixed_param" || model.num_params_r() == 0) {
      status = stan::services::sample::fixed_param(
          model, *start, seed, id, radius, number("num_samples"), number("thin"), 0, interrupt,
          logger, nothing, draws, *points);
    } else {
      auto metric = stan::services::util::create_unit_e_diag_inv_metric(model.num_params_r());
      if (given.at("engaged") == "0" || number("num_warmup") == 0)
        status = stan::services::sample::hmc_nuts_diag_e(
            model, *start, metric, seed, id, radius, number("num_warmup"), number("num_samples"),
            number("thin"), number("save_warmup"), 0, number("stepsize"), 0, number("max_depth"),
            interrupt, logger, nothing, draws, *points);
      else
        status = stan::services::sample::hmc_nuts_diag_e_adapt(
            model, *start, metric, seed, id, radius, number("num_warmup"), number("num_samples"),
            number("thin"), number("save_warmup"), 0, number("stepsize"), 0, number("max_depth"),
            number("delta"), 0.05, 0.75, 10, 75, 50, 25, interrupt, logger, nothing, draws,
            *points, no_metric);
    }
    if (status) return status;
  }
  return 0;
}

int log_prob(stan::model::model_base& model, const Arguments& given) {
  const auto points = read_json(given.at("unconstrained_params"));
  const auto values = points->vals_r("params_r");
  const size_t d = model.num_params_r(), n = values.size() / d;
  std::ofstream out(given.at("output file"));
  out << std::setprecision(std::stoi(given.at("sig_figs"))) << "# method = log_prob\nlp__";
  std::vector<std::string> names;
  model.unconstrained_param_names(names, false, false);
  for (const auto& name : names) out << ",g_" << name;
  out << "\n";
  for (size_t i = 0; i < n; ++i) {
    // As CmdStan does: the rows of the array are read column-major.
    std::vector<double> point(values.begin() + i * d, values.begin() + (i + 1) * d), slope;
    std::vector<int> none;
    out << stan::model::log_prob_grad<true, true>(model, point, none, slope, &std::cout);
    for (const double value : slope) out << "," << value;
    out << "\n";
  }
  return 0;
}

}  // namespace

int main(int count, const char** words) {
  try {
    const auto given = read_arguments(count, words);
    if (given.at("method") == "info") {
      std::cout << "stan_version_major = " << STAN_MAJOR << "\nstan_version_minor = " << STAN_MINOR
                << "\nstan_version_patch = 0\nSTAN_THREADS=false\n";
      return 0;
    }
    auto data = read_json(given.count("data file") ? given.at("data file") : "");
    std::unique_ptr<stan::model::model_base> model(
        &new_model(*data, std::stoul(given.at("seed")), &std::cout));
    return given.at("method") == "log_prob" ? log_prob(*model, given) : sample(*model, given);
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}
